"""modules.json: the chain of sentence-transformers modules that makes the vectors or scores.

Every module is run or refused. A module that is left out silently gives vectors that look right and
have nothing to do with the model's (a Dense layer's absence: cosine near 0).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hotbed.checkpoint.folder import ModelFolder, read_json
from hotbed.core.errors import invalid

MODULES_FILE = "modules.json"
SUPPORTED_MODULES = ("Transformer", "Pooling", "Dense", "Normalize", "FlexibleQuantizer")
"""Of an embedder, in their order."""
SCORE_MODULES = ("Transformer", "LogitScore")
SPARSE_MODULES = ("Transformer", "SpladePooling")
MULTI_VECTOR_MODULES = ("Transformer", "Dense", "MultiVectorMask", "Normalize")
_OLD_KINDS = {"MLMTransformer": "Transformer"}
_KNOWN = tuple(
    dict.fromkeys((*SUPPORTED_MODULES, *SCORE_MODULES, *SPARSE_MODULES, *MULTI_VECTOR_MODULES))
)
# CrossEncoder: the transformer holds the head itself, or gives a language model's logits.
_CHAIN = re.compile(
    r"Transformer( LogitScore| SpladePooling)?"
    r"|Transformer Pooling( Dense)*( Normalize)?( FlexibleQuantizer)?"
    r"|Transformer( Dense)+( MultiVectorMask)?( Normalize)?"
    r"|Transformer( Dense)+ Normalize MultiVectorMask"
)


class Module(msgspec.Struct, frozen=True):
    """One entry: `kind` is the last component of the type, the same in every version's spelling."""

    kind: str
    type: str
    path: str


def read_modules(folder: ModelFolder) -> tuple[Module, ...] | None:
    """The chain of modules; None if the folder has no modules.json (a bare model).

    Raises:
        HotbedError: INVALID_INPUT naming the module type that is not supported, or the chain if
            its order is not Transformer, Pooling[, Dense …][, Normalize][, FlexibleQuantizer],
            Transformer[, LogitScore], Transformer, SpladePooling or
            Transformer, Dense …[, MultiVectorMask][, Normalize].
    """
    if not folder.has(MODULES_FILE):
        return None
    path = folder.path / MODULES_FILE
    entries: Any = read_json(path)
    if not isinstance(entries, list) or not all(_is_entry(e) for e in entries):
        raise invalid(
            f"{path}: expected a list of objects with a type and a path", param=MODULES_FILE
        )
    modules = tuple(Module(_kind(e["type"]), e["type"], e["path"]) for e in entries)
    for module in modules:
        if module.kind not in _KNOWN:
            raise invalid(
                f"{path}: module type {module.type!r} is not supported, and leaving it out would"
                f" give other vectors; supported: {', '.join(_KNOWN)}",
                param=MODULES_FILE,
            )
    kinds = tuple(module.kind for module in modules)
    if not _CHAIN.fullmatch(" ".join(kinds)):
        raise invalid(
            f"{path}: the modules are {' -> '.join(kinds) or 'none'}; supported:"
            " Transformer -> Pooling [-> Dense ...] [-> Normalize] [-> FlexibleQuantizer], for a"
            " CrossEncoder Transformer [-> LogitScore], for a SparseEncoder Transformer ->"
            " SpladePooling, for a MultiVectorEncoder Transformer -> Dense [...]"
            " [-> MultiVectorMask] [-> Normalize]",
            param=MODULES_FILE,
        )
    return modules


def weight_paths(folder: ModelFolder) -> list[str]:
    """Where in the folder the modules with weights lie, with slashes; empty for the root.

    The transformer comes first.
    """
    modules = read_modules(folder)
    if modules is None:
        return [""]
    return [_inside(folder, m) for m in modules if m.kind in ("Transformer", "Dense")]


def module_paths(folder: ModelFolder) -> list[str]:
    """The folders of all modules, with slashes, without the root."""
    paths = (_inside(folder, module) for module in read_modules(folder) or ())
    return [path for path in paths if path]


def _inside(folder: ModelFolder, module: Module) -> str:
    inside = folder.sub(module.path).path.relative_to(folder.path).as_posix()
    return "" if inside == "." else inside


def _kind(type_name: str) -> str:
    last = type_name.rsplit(".", 1)[-1]
    return _OLD_KINDS.get(last, last)


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("type"), str)
        and isinstance(entry.get("path"), str)
    )
