"""The pages lead nowhere that is not there, and name no command or option that is not taken."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

import pytest
from cyclopts import App

from hotbed.bench.shapes import SHAPES
from hotbed.cli import app
from tests.support.pages import PAGES, ROOT, commands, fenced, name_of, without_blocks

# Of other programs: pip, the bench's and the scheduler's own modules, and what every program has.
OTHERS = {"--help", "--no-deps", "--require-hashes", "--trace", "--out"}
OTHERS_IN = {
    "docs/migrating.md": {"--url-prefix"},  # of infinity
    "deploy/docker/README.md": {
        *("--rm", "--read-only", "--tmpfs", "--time", "--gpus", "--build-arg"),
    },
}
MIGRATING = ROOT / "docs" / "migrating.md"


def options(of: App) -> set[str]:
    """All options of a command and its commands."""
    found: set[str] = set()
    for name in of:
        if not name.startswith("-"):
            found |= options(of[name])
    if of.default_command is not None:
        for argument in of.assemble_argument_collection():
            found.update(argument.names)
    return found


def anchor(heading: str) -> str:
    """As the common renderers of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(page)):
        if "://" in target:
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), target
        if heading:
            text = file.read_text("utf-8")
            assert heading in {anchor(h) for h in re.findall(r"^#+ (.*)$", text, re.M)}, target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_option_is_taken_by_some_command(page: Path) -> None:
    text = page.read_text("utf-8")
    if page == MIGRATING:
        text = "\n".join(_ours(text))
    named = set(re.findall(r"(?<![\w-])--[a-z][\w.-]*[a-z0-9]", text))
    assert not named - options(app) - OTHERS - OTHERS_IN.get(name_of(page), set())


def _ours(text: str) -> list[str]:
    """Of the tables in migrating.md the second column, of its prose all."""
    found = []
    for line in text.splitlines():
        if line.startswith("| `"):
            found.append(line.split(" | ")[1])
        elif not re.match(r"\| |    (text-embeddings|vllm|infinity)", line):
            found.append(line)
    return found


@pytest.mark.parametrize(
    ("page", "line"),
    [
        pytest.param(page, line, id=f"{name_of(page)}: {line}")
        for page in PAGES
        for line in commands(page)
        if line.startswith("hotbed ")
    ],
)
def test_every_command_is_taken(page: Path, line: str) -> None:
    words = shlex.split(re.sub(r"[\[\]]|\$common", "", line))[1:]
    app.parse_args(words, exit_on_error=False)


def test_there_are_commands_that_are_looked_at() -> None:
    assert sum(line.startswith("hotbed ") for page in PAGES for line in commands(page)) > 20


def test_a_wrong_option_would_be_found() -> None:
    assert "--tulip.max-step-tokens" in options(app)
    assert "--max-step-token" not in options(app)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_python_is_python(page: Path) -> None:
    for block in fenced(page, "python"):
        compile(block, name_of(page), "exec")


def test_the_sizes_of_models_are_those_of_their_shapes() -> None:
    text = (ROOT / "docs" / "running.md").read_text("utf-8")
    for shape, name in (
        ("bge-m3", "bge-m3"),
        ("pplx-embed-0.6b", "Qwen3-Embedding-0.6B, pplx-embed-v1-0.6b"),
        ("qwen3-embedding-4b", "Qwen3-Embedding-4B"),
    ):
        parameters = SHAPES[shape].weight_map().parameters.values()
        count = sum(math.prod(p.shape) for p in parameters)
        words = f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.0f} M"
        sizes = " | ".join(f"{count * size / 2**30:.1f} GiB" for size in (2, 4))
        assert f"| {name} | {words} | {sizes} |" in text
