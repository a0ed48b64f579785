"""Reads every import of a source file: also inside functions, under TYPE_CHECKING and by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SRC = Path(__file__).parents[2] / "src"


class Import(NamedTuple):
    """One import of a module.

    `target` is the module's full name where it is one of ours (``from hotbed.rose import engine``
    is ``hotbed.rose.engine``), else what the statement says. `lazy` means that importing the file
    does not import the target: it stands in a function or under TYPE_CHECKING.
    """

    target: str
    line: int
    lazy: bool


def imports(source: str, module: str, *, is_package: bool = False) -> list[Import]:
    """Every import in `source`, the text of `module`."""
    found = _walk(ast.parse(source), lazy=False)
    return [Import(t, n, z) for node, z in found for t, n in _targets(node, module, is_package)]


def modules() -> dict[str, Path]:
    """Every module of the package by its full name; a package stands for its ``__init__``."""
    names = {}
    for path in sorted((SRC / "hotbed").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def _walk(tree: ast.AST, *, lazy: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(tree):
        inside = (
            lazy
            or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        )
        yield child, inside
        yield from _walk(child, lazy=inside)


def _targets(node: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, node.lineno
    elif isinstance(node, ast.ImportFrom):
        base = _base(node, module, is_package)
        for alias in node.names:
            yield _with_submodule(base, alias.name), node.lineno
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in {
        "import_module",
        "importlib.import_module",
        "__import__",
    }:
        if node.args and isinstance(node.args[0], ast.Constant):
            yield str(node.args[0].value), node.lineno
        else:
            yield "<computed>", node.lineno


def _base(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".") if is_package else module.split(".")[:-1]
    above = package[: len(package) - (node.level - 1)]
    return ".".join([*above, *(node.module.split(".") if node.module else [])])


def _with_submodule(base: str, name: str) -> str:
    path = SRC.joinpath(*base.split("."), name)
    is_module = path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
    return f"{base}.{name}" if is_module else base
