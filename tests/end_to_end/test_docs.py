"""The pages' programs run as they stand there, against a service of the default model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.service import Service, running
from tests.support.pages import ROOT, commands, fenced, without_blocks
from tests.support.scorers import make_bert_scorer

pytestmark = [pytest.mark.slow, pytest.mark.weights]

README = ROOT / "README.md"
MIGRATING, API = ROOT / "docs" / "migrating.md", ROOT / "docs" / "api.md"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("serve") / "log") as service:
        yield service


def here(text: str, service: Service) -> str:
    """With this service's address in place of the pages' ones."""
    return re.sub(r"http://127\.0\.0\.1:\d+", service.base_url, text)


@pytest.mark.parametrize(
    ("page", "index"),
    [(page, i) for page in (README, MIGRATING) for i in range(len(fenced(page, "python")))],
    ids=lambda value: value.name if isinstance(value, Path) else str(value),
)
def test_a_pages_program_runs(page: Path, index: int, service: Service, tmp_path: Path) -> None:
    make_bert_scorer(tmp_path / "reranker")
    block = fenced(page, "python")[index]
    # As if it stood in a file of the reader's own.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", here(block, service)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    if "smallest cosine" in block:
        assert done.stdout == "smallest cosine 1.000000\n"


def test_the_programs_name_what_they_give() -> None:
    """The comments behind their lines."""
    blocks = fenced(README, "python")
    assert any("# float32 [2, 384]" in block for block in blocks)
    embed = next(block for block in blocks if "# float32 [2, 384]" in block)
    script = embed + "\nprint(rows.dtype, list(rows.shape))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "float32 [2, 384]\n"


def test_the_readmes_curl_is_answered(service: Service) -> None:
    (command,) = [line for line in commands(README) if line.startswith("curl")]
    done = subprocess.run(
        here(command, service), shell=True, capture_output=True, text=True, check=True, timeout=60
    )
    answer = json.loads(done.stdout)
    assert len(answer["data"][0]["embedding"]) == 384


def test_the_readmes_paths_are_there(service: Service) -> None:
    """Of its table what can be read; what is posted to must at least refuse an empty body."""
    table = re.findall(r"^\| [^|]*\| (`.*) \|$", README.read_text("utf-8"), re.M)
    named = [
        (kind, path)
        for cell in table
        for kind, paths in re.findall(r"`(GET|POST) (/[^`]*`(?:, `/[^`]*`)*)", cell)
        for path in re.findall(r"/[\w/.-]*", paths)
    ]
    assert ("POST", "/v2/embed") in named
    assert ("GET", "/metrics") in named
    for kind, path in named:
        assert status(service, kind, path) == (400 if kind == "POST" else 200), (kind, path)


@pytest.mark.parametrize("page", [README, MIGRATING, API], ids=lambda page: page.name)
def test_every_path_that_a_page_names_is_there(page: Path, service: Service) -> None:
    named = set(re.findall(r"`(?:GET |POST )?(/[a-z0-9_/-]*)`", without_blocks(page)))
    assert len(named) > 10
    for path in named - {"/v1", "/v2"}:  # said of the paths below
        assert {status(service, kind, path) for kind in ("GET", "POST")} & {200, 400}, path


def status(service: Service, kind: str, path: str) -> int:
    if kind == "GET":
        return httpx.get(service.base_url + path, timeout=60).status_code
    return httpx.post(service.base_url + path, json={}, timeout=60).status_code
