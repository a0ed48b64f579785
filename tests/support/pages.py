"""The repository's Markdown pages, for tests that hold them to what there is."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Not the changelog, which tells of the past, nor folders that are not ours.
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md"))
    if path.name != "CHANGELOG.md"
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fenced(page: Path, language: str) -> list[str]:
    """Blocks between fences of this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M)


def without_blocks(page: Path) -> str:
    """The page's prose and tables."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.M)
    return "\n".join(line for line in text.splitlines() if not line.startswith("    "))


def commands(page: Path) -> list[str]:
    """Lines of shell in indented blocks, continued ones joined, comments and variables left out."""
    lines = re.findall(r"^    (.*)$", page.read_text("utf-8"), re.M)
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [re.sub(r"\s+#\s.*$", "", line).strip() for line in joined.splitlines()]
