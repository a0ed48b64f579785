"""Which models give a vector a token for late interaction, and how: folders of
sentence-transformers' MultiVectorEncoder and of PyLate, and bge-m3's head.

Source: Khattab and Zaharia 2020, arXiv 2004.12832. What ColBERT does to texts (prefixes, lengths,
words without a vector, queries filled up) is read too; `hotbed.text.multi_vector` does it.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any, Literal, cast

from hotbed.checkpoint.dense import read_dense
from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.modules import Module
from hotbed.checkpoint.output_records import MultiVectorHead
from hotbed.checkpoint.sentence_transformers import SETTINGS_FILE
from hotbed.checkpoint.sparse import read_linear, warn_of_pickle
from hotbed.checkpoint.tensor_records import DenseModule
from hotbed.checkpoint.token_ids import TokenIds
from hotbed.checkpoint.transformer_settings import read_settings
from hotbed.core.errors import invalid

HEAD_FILE = "colbert_linear.safetensors"
_PYLATE_LENGTH = 32
_PYLATE = "ColBERT"
_LENGTHS = ("query_length", "document_length")


def read_late_interaction(
    folder: ModelFolder,
    transformer: ModelFolder,
    modules: tuple[Module, ...],
    *,
    width: int,
    weights: bool,
) -> MultiVectorHead:
    """The head of a model that gives nothing but such vectors.

    Raises:
        HotbedError: INVALID_INPUT naming the field and what is supported, such as queries filled up
            with tokens that the others do not see.
    """
    settings = _object(folder, SETTINGS_FILE)
    is_pylate = settings.get("model_type") == _PYLATE
    chain = {module.kind: module for module in modules}
    if "Normalize" in chain:
        _check_normalize(folder.sub(chain["Normalize"].path))
    mask = (
        _object(folder.sub(chain["MultiVectorMask"].path), "config.json")
        if ("MultiVectorMask" in chain)
        else {}
    )
    if mask.get("keep_only_token_ids"):
        raise unsupported(
            folder.path / chain["MultiVectorMask"].path / "config.json",
            "keep_only_token_ids",
            mask["keep_only_token_ids"],
            (None,),
        )
    words = mask.get("skiplist_words", settings.get("skiplist_words"))
    if words is None and is_pylate and not mask:
        words = list(string.punctuation)  # what PyLate skips where the file does not say
    tokens = TokenIds(transformer)
    found = (tokens.find(str(word)) for word in words or ())
    tasks = mask.get("skiplist_tasks") or ["document"]
    return MultiVectorHead(
        dense=read_dense(folder, modules, width=width, weights=weights, place="token_embeddings"),
        normalize="Normalize" in chain or is_pylate,
        skipped_tokens=tuple(sorted({token for token in found if token is not None})),
        skips_in=cast(
            "tuple[Literal['query', 'document'], ...]",
            tuple([tasks] if isinstance(tasks, str) else tasks),
        ),
        marks=tuple(_marks(settings, tokens)),
        **_lengths(folder, transformer, settings, tokens),
    )


def read_extra_head(folder: ModelFolder, *, width: int, weights: bool) -> MultiVectorHead | None:
    """bge-m3's head, in a file of its own beside the dense model; None if the folder has none.

    Raises:
        HotbedError: INVALID_INPUT if the file does not hold a layer from `width` to `width`.
    """
    if not folder.has(HEAD_FILE):
        warn_of_pickle(folder, "colbert_linear", "multi_vector")
        return None
    held = read_linear(folder, HEAD_FILE, (width, width))
    layer = DenseModule(
        in_features=width,
        out_features=width,
        activation="none",
        tensors=held if weights else {},
    )
    return MultiVectorHead(dense=(layer,), normalize=True, skips_first=True)


def _marks(settings: dict[str, Any], tokens: TokenIds) -> Iterator[tuple[str, int]]:
    """PyLate's prefixes that are a token, with or without the white space behind it."""
    for field in ("query_prefix", "document_prefix"):
        prefix = settings.get(field)
        if not isinstance(prefix, str) or not prefix.split():
            continue
        found = tokens.find(prefix)
        if found is None:
            found = tokens.find(prefix.split()[0])
        if found is not None:
            yield prefix, found


def _check_normalize(folder: ModelFolder) -> None:
    raw = _object(folder, "config.json")
    for field in ("module_input_name", "module_output_name"):
        if raw.get(field) != "token_embeddings":
            raise unsupported(
                folder.path / "config.json", field, raw.get(field), ("token_embeddings",)
            )


def _lengths(
    folder: ModelFolder, transformer: ModelFolder, settings: dict[str, Any], tokens: TokenIds
) -> dict[str, Any]:
    """Limits of queries and documents, and what queries are filled up with.

    In sentence-transformers' form they are in the transformer's file, in PyLate's in the settings.
    """
    path, own = read_settings(transformer)
    fields = {name: own.get(name, settings.get(name)) for name in _LENGTHS}
    for name, value in fields.items():
        is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if value is not None and not is_count:
            raise invalid(f"{folder.path}: {name} is {value!r}; it must be at least 1", param=name)
    expansion = _expansion(own, settings, fields["query_length"])
    if expansion is None:
        return dict(fields)
    if not expansion.get("attend"):
        raise invalid(
            f"{folder.name!r}: queries are filled up with tokens that the query's own tokens do not"
            " see (attend_to_expansion_tokens or query_expansion.attend is false), which is not"
            " supported. To serve the model without filling up, set query_expansion to null in"
            f" {path}: queries then have the vectors of their own tokens only, and scores differ"
            " from the authors'",
            param="query_expansion",
        )
    text = expansion.get("token")
    token = tokens.find(text) if isinstance(text, str) else tokens.special("mask_token")
    if token is None:
        token = tokens.special("eos_token")
    length = expansion.get("length")
    if token is None or not isinstance(length, int) or length < 1:
        raise unsupported(
            path, "query_expansion", expansion, ({"attend": True, "length": 32, "token": "[MASK]"},)
        )
    fixed = expansion.get("strategy", "fixed") == "fixed"
    return {**fields, "query_length": length if fixed else fields["query_length"],
            "expansion": (token, length)}  # fmt: skip


def _expansion(
    own: dict[str, Any], settings: dict[str, Any], query_length: int | None
) -> dict[str, Any] | None:
    """sentence-transformers' record of it, made from PyLate's fields where it is theirs."""
    for place in (own, settings):
        if "query_expansion" in place:
            found = place["query_expansion"]
            return found if isinstance(found, dict) else None
    marks = ("query_length", "document_length", "do_query_expansion", "attend_to_expansion_tokens",
             "query_prefix", "document_prefix", "skiplist_words")  # fmt: skip
    if settings.get("do_query_expansion") is False or not any(mark in settings for mark in marks):
        return None
    return {
        "strategy": "fixed",
        "attend": bool(settings.get("attend_to_expansion_tokens")),
        "length": query_length or _PYLATE_LENGTH,
    }


def _object(folder: ModelFolder, name: str) -> dict[str, Any]:
    return read_json_object(folder.path / name) if folder.has(name) else {}


def is_late_interaction(modules: tuple[Module, ...] | None) -> bool:
    """Whether the chain has token vectors at its end: Dense modules without a pooling before."""
    kinds = [module.kind for module in modules or ()]
    return "Dense" in kinds and "Pooling" not in kinds
