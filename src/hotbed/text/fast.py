"""Faster tokenizers behind the backend contract, and the choice between them and the reference.

Both are optional packages and stand in only where they agree exactly with Hugging Face's tokenizer
on the self-check's strings. CPU time against Hugging Face's, measured 2026-11-30: nanotoken 0.07 to
0.28 (WordPiece), fastokens 0.02 to 0.20 (byte-level BPE).
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers

from hotbed.core.ragged import RaggedBatch
from hotbed.text.backend import Backend, BackendName, HuggingFaceBackend, panic_as_error
from hotbed.text.check_strings import check_strings
from hotbed.text.selfcheck import num_differences

logger = logging.getLogger("hotbed.text")

# Words that nanotoken remembers, a thread. Its own 1,048,576 grow to 230 MB a thread on fresh
# words; 65,536 stay under 20 MB and are no slower on real text (2026-11-30).
_NANOTOKEN_CACHE_ENTRIES = 65_536


class NanotokenBackend:
    """nanotoken, WordPiece only.

    Building one sets the size of nanotoken's word caches for the whole process: the library knows
    no narrower scope.
    """

    name: BackendName = "nanotoken"

    def __init__(self, tokenizer_json: str) -> None:
        nanotoken = importlib.import_module("nanotoken")
        nanotoken.set_cache_entries(_NANOTOKEN_CACHE_ENTRIES)
        self._tokenizer: Any = nanotoken.WordPieceTokenizer.from_json(tokenizer_json)

    def encode(self, texts: Sequence[str], *, add_special_tokens: bool) -> RaggedBatch:
        with panic_as_error():
            ids, offsets = self._tokenizer.encode_batch(
                texts, add_special_tokens=add_special_tokens, parallel=False
            )
        return RaggedBatch(ids.view(np.int32), offsets.astype(np.int32))


class FastokensBackend:
    """fastokens, BPE only."""

    name: BackendName = "fastokens"

    def __init__(self, tokenizer_json: str) -> None:
        fastokens = importlib.import_module("fastokens")
        self._tokenizer: Any = fastokens.Tokenizer.from_json_str(tokenizer_json)

    def encode(self, texts: Sequence[str], *, add_special_tokens: bool) -> RaggedBatch:
        with panic_as_error():
            ids, offsets = self._tokenizer.encode_batch_flat(list(texts), add_special_tokens)
        return RaggedBatch(
            np.frombuffer(ids, dtype=np.int32),
            np.frombuffer(offsets, dtype=np.uint64).astype(np.int32),
        )


# By the type of model in tokenizer.json; the others have no faster library that is exact.
CANDIDATES: Mapping[str, Callable[[str], Backend]] = {
    "WordPiece": NanotokenBackend,
    "BPE": FastokensBackend,
}


def choose_backend(
    tokenizer: tokenizers.Tokenizer,
    reference: HuggingFaceBackend,
    candidates: Mapping[str, Callable[[str], Backend]] = CANDIDATES,
) -> Backend:
    """The fast backend for this kind of tokenizer if it is installed and exact, else the reference.

    Args:
        tokenizer: without padding and truncation; what `reference` stands on.
        reference: answers where no candidate does.
        candidates: makes a backend from tokenizer.json's text, by type of model.

    Logs one line (info) that says which backend was taken and why.
    """
    kind = type(tokenizer.model).__name__
    if kind not in candidates:
        logger.info("tokenizing with tokenizers: no faster library takes a %s model", kind)
        return reference
    make = candidates[kind]
    name = getattr(make, "name", kind)
    try:
        with panic_as_error():
            candidate = make(tokenizer.to_str())
        texts = check_strings(tokenizer)
        differences = num_differences(reference, candidate, texts)
    except ImportError:
        logger.info("tokenizing with tokenizers: %s is not installed", name)
        return reference
    except Exception as error:  # whatever a third-party library does not support
        logger.warning("tokenizing with tokenizers: %s refused the tokenizer: %s", name, error)
        return reference
    if differences:
        logger.warning(
            "tokenizing with tokenizers: %s differs on %d of %d self-check strings",
            name,
            differences,
            len(texts),
        )
        return reference
    logger.info("tokenizing with %s: it agrees on all %d self-check strings", name, len(texts))
    return candidate
