"""The rooms and the arrows between them: who may import whom, read from every file's imports."""

from __future__ import annotations

import graphlib

import pytest

from tests.rules.imports import SRC, Import, imports, modules

EVERYTHING = "*"

# Importer -> what it may import. A name is a room (a folder) or one module of it; the row of the
# longest name that fits a file counts, and inside its own row a file imports freely. `core` and the
# package's version are open to all.
ARROWS: dict[str, set[str]] = {
    "core": set(),
    "checkpoint": set(),
    "text": {"checkpoint.records"},
    "wire": set(),
    "ivy": {"text", "wire", "checkpoint"},
    "tulip": {"wire"},
    "tulip.__main__": {"wire", "tulip", "rose", "rose.attention.select", "checkpoint"},
    "bulk": {"text", "rose", "rose.attention.select", "checkpoint"},
    # It runs what it speaks of, from the engine down to the kernels.
    "doctor": {
        "checkpoint",
        "rose",
        "rose.attention",
        "rose.batch",
        "rose.kernels",
        "rose.kernels.cpu",
        "rose.layers.fused",
        "rose.weights",
        "text",
    },
    # It measures the engine as the others are measured, and starts processes as serve does.
    "bench": {
        "bulk",
        "checkpoint",
        "doctor",
        "rose",
        "rose.attention",
        "rose.weights",
        "serve.tether",
        "wire",
    },
    "serve": {"ivy.settings", "tulip.settings", "wire"},  # wire: Info for the start-up page
    # Inside rose: engine -> models -> layers -> {attention, kernels}, never upward. The batch and
    # the weights' name maps are what the floors hand each other, so they lie at the bottom.
    "rose": {
        "checkpoint",
        "rose.models",
        "rose.layers",
        "rose.attention",
        "rose.kernels",
        "rose.batch",
        "rose.weights",
    },
    "rose.models": {"checkpoint.records", "rose.layers", "rose.attention.backend"}
    | {"rose.batch", "rose.weights"},
    "rose.layers": {"rose.attention", "rose.kernels", "rose.kernels.cpu", "rose.kernels.hopper"}
    | {"rose.batch"},
    "rose.attention": {"rose.batch", "rose.kernels.files"},
    "rose.kernels": set(),
    "rose.kernels.cpu": set(),
    "rose.kernels.hopper": set(),
    "rose.batch": set(),
    "rose.weights": {"checkpoint.records"},
    # Both import a room only when they need it: `hotbed --help` must not pay for torch.
    "cli": {EVERYTHING},
    "": {EVERYTHING},
}
# What these may import while they are themselves imported.
EAGER: dict[str, set[str]] = {
    "cli": {"ivy.settings", "tulip.settings", "serve.settings", "bulk.options"} | {"bench.options"},
    "": set(),
}
# These import what they are told to: the process of a measured system its adapter, by name.
COMPUTED = {"hotbed.bench.worker"}
# Importer -> libraries it never imports, also not inside functions.
HEAVY = {"torch", "triton", "transformers"}
NEVER: dict[str, set[str]] = {
    room: set(HEAVY) for room in ("core", "checkpoint", "text", "wire", "ivy", "tulip", "serve")
} | {
    room: {"grpc", "google", "uvicorn", "httptools"}
    for room in ARROWS
    if room.split(".")[0] in ("rose", "bulk", "doctor")
}
NEVER["tulip"] |= {"uvicorn", "httptools"}


def _row(name: str) -> str:
    """The row of ARROWS for a module, given without ``hotbed.``: the longest one that fits."""
    fitting = [r for r in ARROWS if r and (name == r or name.startswith(r + "."))]
    return max(fitting, key=len, default=name)


def _allows(allowed: set[str], target: str) -> bool:
    if EVERYTHING in allowed or _row(target) in allowed:
        return True
    return any(target == a or target.startswith(a + ".") for a in allowed if a not in ARROWS)


def _breach(module: str, found: Import) -> str | None:
    """What is wrong with an import of `module` (its full name), or None."""
    row = _row(module.removeprefix("hotbed").removeprefix("."))
    top, _, target = found.target.partition(".")
    where = f"{module}, line {found.line}"
    if row not in ARROWS:
        return f"{where}: {row} has no row in the table of arrows"
    if top in NEVER.get(row, NEVER.get(row.split(".")[0], set())):
        return f"{where}: {row or 'hotbed'} never imports {top}"
    if top in HEAVY and row in EAGER and not found.lazy:
        return f"{where}: {row or 'hotbed'} may import {top} only inside a function"
    if found.target == "<computed>" and module not in COMPUTED:
        return f"{where}: an import by a computed name cannot be checked"
    if top != "hotbed" or not target or _row(target) in (row, "core"):
        return None
    if not _allows(ARROWS[row], target):
        return f"{where}: no arrow {row or 'hotbed'} -> {target}"
    if row in EAGER and not found.lazy and not _allows(EAGER[row], target):
        return f"{where}: {row or 'hotbed'} may import {target} only inside a function"
    return None


def test_every_import_follows_an_arrow() -> None:
    breaches = [
        breach
        for module, path in modules().items()
        for found in imports(path.read_text(), module, is_package=path.name == "__init__.py")
        if (breach := _breach(module, found)) is not None
    ]
    assert not breaches, "\n".join(dict.fromkeys(breaches))


def test_every_room_has_a_row_and_every_row_is_a_room() -> None:
    """A new folder must be given its arrows; a row must not outlive its room."""
    rooms = {
        name.removeprefix("hotbed.") for name, p in modules().items() if p.name == "__init__.py"
    } - {"hotbed"}
    without_row = {r for r in rooms if r not in ARROWS and ("." not in r or r.startswith("rose."))}
    assert not without_row
    named = set(ARROWS) - {""} | set().union(*ARROWS.values(), *EAGER.values()) - {EVERYTHING}
    known = {name.removeprefix("hotbed.") for name in modules()}
    assert {name.removeprefix("hotbed.") for name in COMPUTED} <= known
    assert named <= known, f"not in src/hotbed: {sorted(named - known)}"


def test_the_arrows_have_no_cycle() -> None:
    graph = {row: {_row(a) for a in to} for row, to in ARROWS.items() if EVERYTHING not in to}
    list(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hotbed.ivy.app", "import torch"),
        ("hotbed.ivy.app", "def f():\n    from torch import nn"),
        ("hotbed.ivy.app", "def f():\n    import importlib\n    importlib.import_module('torch')"),
        ("hotbed.ivy.app", "if TYPE_CHECKING:\n    from hotbed.rose.engine import RoseEngine"),
        ("hotbed.ivy.app", "import hotbed.tulip.settings"),
        ("hotbed.ivy.app", "from hotbed import rose"),
        ("hotbed.ivy.app", "from ..rose import engine"),
        ("hotbed.ivy.app", "def f(name):\n    import_module(name)"),
        ("hotbed.tulip.loop", "from hotbed.rose.engine import RoseEngine"),
        ("hotbed.tulip.loop", "import hotbed.tulip.__main__"),
        ("hotbed.tulip.loop", "import torch.cuda"),
        ("hotbed.rose.engine", "import grpc"),
        ("hotbed.rose.engine", "from hotbed.wire import codec"),
        ("hotbed.rose.models.bert", "from hotbed.rose.engine import RoseEngine"),
        ("hotbed.rose.models.bert", "from hotbed.rose.attention.select import select_backend"),
        ("hotbed.rose.layers.norm", "from hotbed.rose.models import bert"),
        ("hotbed.rose.attention.sdpa", "from hotbed.rose.layers import linear"),
        ("hotbed.rose.batch", "from hotbed.rose import engine"),
        ("hotbed.serve.supervisor", "from hotbed.ivy.app import build"),
        ("hotbed.text.tokenizer", "from hotbed.checkpoint.load import load_checkpoint"),
        ("hotbed.wire.codec", "from hotbed.ivy import settings"),
        ("hotbed.core.errors", "from hotbed.wire import errors"),
        ("hotbed.checkpoint.load", "from hotbed.text import prompts"),
        ("hotbed.cli", "from hotbed.tulip.__main__ import run"),
        ("hotbed.cli", "import torch"),
        ("hotbed.newcomer", "import math"),
        ("hotbed", "from hotbed.bulk.embedder import Embedder"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    found = imports(source, module, is_package=module == "hotbed")
    assert any(_breach(module, i) for i in found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hotbed.ivy.app", "from hotbed.text.split import split"),
        ("hotbed.ivy.app", "from hotbed import __version__"),
        ("hotbed.ivy.app", "from . import settings"),
        ("hotbed.tulip.__main__", "from hotbed.rose.engine import RoseEngine"),
        ("hotbed.tulip.loop", "from hotbed.core import step"),
        ("hotbed.serve.supervisor", "from hotbed.ivy.settings import IvySettings"),
        ("hotbed.text.prompts", "from hotbed.checkpoint.records import Prompts"),
        ("hotbed.rose.models.bert", "from hotbed.rose.attention.backend import AttentionBackend"),
        ("hotbed.cli", "def f():\n    from hotbed.tulip.__main__ import run"),
        ("hotbed.cli", "def f():\n    import torch"),
        ("hotbed", "if TYPE_CHECKING:\n    from hotbed.bulk.embedder import Embedder"),
    ],
)
def test_an_allowed_import_passes(module: str, source: str) -> None:
    found = imports(source, module, is_package=module == "hotbed")
    assert found
    assert not any(_breach(module, i) for i in found)


def test_the_sources_are_where_the_test_looks() -> None:
    assert len(modules()) > 20, f"hardly any source under {SRC}"
