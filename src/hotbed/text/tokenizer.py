"""Texts and client-sent token ids become ragged batches, checked against the model's limits.

Rules, the same for every route:

- A text is never stripped or changed, except that lone surrogates become U+FFFD.
- A text that is empty, white space only, or gives no token of its own is refused.
- Special-token strings inside a text, such as ``[SEP]``, become special tokens, as in Hugging
  Face's libraries and sentence-transformers.
- Case and accents follow tokenizer.json; ``do_lower_case`` of sentence_bert_config.json lower-cases
  first where it is true, and where it is false an uncased tokenizer stays one.
- An end token that tokenizer_config.json asks for stands behind every text.
- Padding and truncation stored in tokenizer.json are switched off. Truncation happens only when
  asked for, and cuts the text, never the special tokens around it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import tokenizers

from hotbed.checkpoint.records import TokenizerFiles
from hotbed.core.errors import invalid
from hotbed.core.ragged import Int32Array, RaggedBatch
from hotbed.text.backend import Backend, BackendName, HuggingFaceBackend, Token
from hotbed.text.cost import measure_cost
from hotbed.text.end_token import append_end_token
from hotbed.text.fast import choose_backend
from hotbed.text.lower_case import lower_case_first
from hotbed.text.options import DEFAULT_OPTIONS, Encoded, EncodeOptions, Measured
from hotbed.text.template import Template, find_template
from hotbed.text.texts import (
    blank_indexes,
    check_length,
    checked_texts,
    input_name,
    refuse_blank,
    without_surrogates,
)
from hotbed.text.token_arrays import ragged_from_arrays
from hotbed.text.truncation import truncate

__all__ = ["DEFAULT_MAX_CHARS", "DEFAULT_OPTIONS", "EncodeOptions", "Encoded", "Tokenizer"]

logger = logging.getLogger("hotbed.text")

DEFAULT_MAX_CHARS = 2_000_000
"""Longest text that is tokenised at all: about 4.7 s of CPU at worst with Hugging Face's tokenizer
(2.3 us a character for CJK in WordPiece, 2026-11-30), 0.6 s with the fast ones.

It is no estimate of tokens: a run of white space or one endless word can be a single token, so text
cut by characters before tokenising could give other ids than the whole text truncated by tokens.
"""


class Tokenizer:
    """One model's tokenizer with its limits. Any thread may use it; encoding releases the GIL."""

    def __init__(
        self,
        *,
        reference: HuggingFaceBackend,
        backend: Backend,
        template: Template,
        max_tokens: int,
        vocab_size: int,
        max_chars: int,
        fingerprint: str,
        chunk_separator: int | None = None,
    ) -> None:
        """Use `load`."""
        self._reference = reference
        self._backend = backend
        self._template = template
        self._max_tokens = max_tokens
        self._vocab_size = vocab_size
        self._max_chars = max_chars
        self._fingerprint = fingerprint
        self._chunk_separator = chunk_separator
        self._cost = measure_cost(backend)

    @staticmethod
    def load(
        files: TokenizerFiles,
        *,
        max_tokens: int,
        vocab_size: int,
        fast: Literal["auto", "off"] = "auto",
        max_chars: int = DEFAULT_MAX_CHARS,
    ) -> Tokenizer:
        """Read tokenizer.json and choose the backend; takes from 0.1 s to some seconds.

        Args:
            files: the model's.
            max_tokens: longest sequence the model takes, special tokens included.
            vocab_size: rows of the model's embedding table.
            fast: ``auto`` takes nanotoken or fastokens where they pass the self-check.
            max_chars: longest text, in characters; past it TOO_LARGE.

        Raises:
            HotbedError: INVALID_INPUT if the file cannot be read, adds special tokens in another
                form than a prefix and a suffix, or one that the model has no row for, leaves no
                room for text within `max_tokens`, or lacks the end token or the chunk separator.
        """
        path = files.tokenizer_json
        try:
            data = path.read_bytes()
            tokenizer = tokenizers.Tokenizer.from_buffer(data)
        except (OSError, ValueError) as error:
            raise invalid(f"{path} cannot be read as a tokenizer: {error}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        if files.lower_case:
            lower_case_first(tokenizer)
        reference = HuggingFaceBackend(tokenizer)
        template = find_template(reference)
        if files.end_token is not None:
            template = append_end_token(tokenizer, files.end_token, template)
        beyond = [i for i in (*template.prefix, *template.suffix) if i >= vocab_size]
        if beyond:
            raise invalid(
                f"{path} adds the token {tokenizer.id_to_token(beyond[0])!r} (id {beyond[0]}) to"
                f" every text, but the model's vocab_size is {vocab_size}: it is another model's"
            )
        if max_tokens <= template.num_special_tokens:
            raise invalid(
                f"max_tokens is {max_tokens}, but the tokenizer adds {template.num_special_tokens} "
                "special tokens: no room for text"
            )
        backend = choose_backend(tokenizer, reference) if fast == "auto" else reference
        return Tokenizer(
            reference=reference,
            backend=backend,
            template=template,
            max_tokens=max_tokens,
            vocab_size=vocab_size,
            max_chars=max_chars,
            fingerprint=_fingerprint(data, files),
            chunk_separator=_separator_id(tokenizer, files),
        )

    @property
    def max_tokens(self) -> int:
        """Longest sequence, special tokens included."""
        return self._max_tokens

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def num_special_tokens(self) -> int:
        """Tokens that the template adds to every text."""
        return self._template.num_special_tokens

    @property
    def template(self) -> Template:
        """The special tokens around every text."""
        return self._template

    @property
    def chunk_separator(self) -> int | None:
        """Id of the token that the model wants between the chunks of a document; None: nothing."""
        return self._chunk_separator

    @property
    def backend(self) -> BackendName:
        """The library that tokenises."""
        return self._backend.name

    @property
    def fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 of tokenizer.json and what was added to it."""
        return self._fingerprint

    @property
    def max_chars(self) -> int:
        """Longest text, in characters."""
        return self._max_chars

    @property
    def reference(self) -> HuggingFaceBackend:
        """Hugging Face's own, which alone knows pairs."""
        return self._reference

    @property
    def us_per_kchar(self) -> float:
        """Rough CPU microseconds for 1,000 characters of English, measured at load."""
        return self._cost.us_per_kchar

    def estimate_us(self, texts: Iterable[str]) -> float:
        """Rough CPU microseconds that one call of `encode` takes for these texts."""
        return self._cost.estimate_us(texts)

    def encode(self, texts: Sequence[str], options: EncodeOptions = DEFAULT_OPTIONS) -> Encoded:
        """Tokenise; all texts or none.

        Raises:
            HotbedError: INVALID_INPUT with ``input[i]`` for a text that is empty, too long without
                `truncate`, or holds a token that the model has no row for; TOO_LARGE for one of
                more than `max_chars` characters.
        """
        template = self._template if options.add_special_tokens else Template()
        max_tokens = options.limit(
            max_tokens=self._max_tokens, num_special_tokens=template.num_special_tokens
        )
        inputs = checked_texts(texts, max_chars=self._max_chars)
        batch, blank = self._tokenize(inputs, options, template)
        lengths = batch.lengths
        refuse_blank(batch, lengths, blank)
        if batch.token_ids.max() >= self._vocab_size:
            self._refuse_unknown_id(batch)
        return _fit(batch, lengths, options, max_tokens=max_tokens, template=template)

    def check_token_arrays(
        self, arrays: Sequence[Sequence[int]], options: EncodeOptions = DEFAULT_OPTIONS
    ) -> Encoded:
        """The ids as given, nothing added, checked for type, range and length.

        `truncate` cuts them like text: where an array begins or ends with the special tokens that
        this tokenizer adds, these stay.

        Raises:
            HotbedError: INVALID_INPUT with ``input[i]`` for an array that is empty, too long
                without `truncate`, or holds anything but ids of the vocabulary; and for a
                prefix, which cannot be put before ids.
        """
        if options.prefix:
            raise invalid(
                "A prompt cannot be put before token ids: send text, or its ids.", "input"
            )
        max_tokens = options.limit(
            max_tokens=self._max_tokens, num_special_tokens=self.num_special_tokens
        )
        batch = ragged_from_arrays(arrays, vocab_size=self._vocab_size)
        return _fit(batch, batch.lengths, options, max_tokens=max_tokens, template=self._template)

    def describe(
        self, texts: Sequence[str], *, prefix: str = "", add_special_tokens: bool = True
    ) -> list[list[Token]]:
        """Each text's tokens with their places in prefix + text; for people, not for models.

        A text may be empty or longer than the model takes.

        Raises:
            HotbedError: TOO_LARGE for one of more than `max_chars` characters.
        """
        for i, text in enumerate(texts):
            check_length(text, input_name(i), max_chars=self._max_chars)
        cleaned = [without_surrogates(prefix + text) for text in texts]
        return self._reference.describe(cleaned, add_special_tokens=add_special_tokens)

    def decode(
        self, arrays: Sequence[Sequence[int]], *, skip_special_tokens: bool = False
    ) -> list[str]:
        """Text of each array of token ids.

        Raises:
            HotbedError: INVALID_INPUT as of `check_token_arrays`; any length is taken.
        """
        ragged_from_arrays(arrays, vocab_size=self._vocab_size)
        return self._reference.decode(arrays, skip_special_tokens=skip_special_tokens)

    def measure(self, texts: Sequence[str], options: EncodeOptions = DEFAULT_OPTIONS) -> Measured:
        """Tokenise at least one text and say what is wrong with which, instead of refusing them.

        For work where one bad text must not stop the others. Texts may be empty; `options.truncate`
        has no effect, and `max_chars` is for the caller to mind.
        """
        template = self._template if options.add_special_tokens else Template()
        max_tokens = options.limit(
            max_tokens=self._max_tokens, num_special_tokens=template.num_special_tokens
        )
        batch, blank_ids = self._tokenize([without_surrogates(t) for t in texts], options, template)
        lengths = batch.lengths
        blank, unknown = np.zeros((2, len(texts)), dtype=np.bool_)
        blank[list(blank_indexes(batch, lengths, blank_ids))] = True
        blank[[not text or text.isspace() for text in texts]] = True
        at = np.flatnonzero(batch.token_ids >= self._vocab_size)
        unknown[np.searchsorted(batch.cu_seqlens, at, side="right") - 1] = True
        cut, _ = truncate(
            batch, max_tokens=max_tokens, side=options.truncation_side, template=template
        )
        return Measured(cut, lengths, blank, unknown)

    def encode_bare(self, texts: list[str]) -> RaggedBatch:
        """Ids of texts that were checked already, without special tokens around them."""
        return self._encode(texts, add_special_tokens=False)

    def _tokenize(
        self, texts: list[str], options: EncodeOptions, template: Template
    ) -> tuple[RaggedBatch, Int32Array]:
        """The texts' sequences, and the sequence that a text without any token of its own gives."""
        if not options.prefix:
            batch = self._encode(texts, options.add_special_tokens)
            return batch, np.array(template.prefix + template.suffix, dtype=np.int32)
        prefix = without_surrogates(options.prefix)
        batch = self._encode([prefix + t for t in texts] + [prefix], options.add_special_tokens)
        return batch.slice(0, len(texts)), batch.sequence(len(texts))

    def _encode(self, texts: list[str], add_special_tokens: bool) -> RaggedBatch:
        """Ask the backend; where a fast one fails, log it and ask the reference."""
        try:
            return self._backend.encode(texts, add_special_tokens=add_special_tokens)
        except Exception as error:
            if self._backend is self._reference:
                raise
            logger.warning("%s failed on a batch (%s)", self._backend.name, type(error).__name__)
        return self._reference.encode(texts, add_special_tokens=add_special_tokens)

    def _refuse_unknown_id(self, batch: RaggedBatch) -> None:
        at = int(np.argmax(batch.token_ids >= self._vocab_size))
        i = int(np.searchsorted(batch.cu_seqlens, at, side="right")) - 1
        raise invalid(
            f"input[{i}] holds a token with id {batch.token_ids[at]}, which the tokenizer knows "
            f"but the model does not: its vocabulary has {self._vocab_size} ids.",
            f"input[{i}]",
        )


def _fingerprint(tokenizer_json: bytes, files: TokenizerFiles) -> str:
    added = (files.end_token or "") + ("\nlower case" if files.lower_case else "")
    return hashlib.sha256(tokenizer_json + added.encode()).hexdigest()[:16]


def _separator_id(tokenizer: tokenizers.Tokenizer, files: TokenizerFiles) -> int | None:
    if files.chunk_separator is None:
        return None
    token_id: int | None = tokenizer.token_to_id(files.chunk_separator)
    if token_id is None:
        raise invalid(
            f"{files.tokenizer_json} has no token {files.chunk_separator!r}, which the model puts"
            " between chunks"
        )
    return token_id


def _fit(
    batch: RaggedBatch,
    lengths: Int32Array,
    options: EncodeOptions,
    *,
    max_tokens: int,
    template: Template,
) -> Encoded:
    """Truncate to the limit, or refuse the first sequence over it."""
    if lengths.max() <= max_tokens:
        return Encoded(batch, 0)
    if options.truncate:
        cut, num_truncated = truncate(
            batch, max_tokens=max_tokens, side=options.truncation_side, template=template
        )
        return Encoded(cut, num_truncated)
    i = int(np.argmax(lengths > max_tokens))
    raise invalid(
        f"input[{i}] has {lengths[i]} tokens, the limit is {max_tokens} (special tokens included). "
        "Send a shorter text, or set truncate to true to have it cut.",
        f"input[{i}]",
    )
