"""Vectors in a store: all of them, once, and only of one recipe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hotbed.bulk.push import StoreName, push
from hotbed.core.errors import HotbedError
from tests.bulk.jobs import embed, texts, write_jsonl
from tests.test_cli import run

TEXTS = texts(70)
# The clients' own, of code that they import.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def job(bert_folder: Path, tmp_path: Path) -> Path:
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"i": i, "text": t} for i, t in enumerate(TEXTS)])
    embed(bert_folder, corpus, tmp_path / "out", rows_per_part=30)
    return tmp_path / "out"


def _rows(url: str) -> dict[int, tuple[str, list[float]]]:
    """Of the table ``t``, by the column ``i``."""
    from qdrant_client import QdrantClient

    client = QdrantClient(path=url)
    points, _ = client.scroll("t", limit=1000, with_vectors=True)
    client.close()
    return {p.payload["i"]: (p.payload["text"], p.vector) for p in points}


@pytest.mark.parametrize("store", ["qdrant"])
def test_every_row_is_there_once_also_when_pushed_twice(
    store: StoreName, job: Path, tmp_path: Path
) -> None:
    url = str(tmp_path / "store")
    assert push(job, store, url, "t") == (70, 70)
    assert push(job, store, url, "t") == (70, 70)
    rows = _rows(url)
    table = pq.read_table(job)
    assert {i: text for i, (text, _) in rows.items()} == dict(enumerate(TEXTS))
    expected = np.array(table["embedding"].to_pylist(), dtype=np.float32)
    made = np.array([rows[i][1] for i in range(70)], dtype=np.float32)
    np.testing.assert_allclose(made, expected, atol=1e-6)  # Qdrant normalises once more


@pytest.mark.parametrize("store", ["qdrant"])
def test_vectors_of_another_recipe_are_not_mixed_in(
    store: StoreName, job: Path, bert_folder: Path, tmp_path: Path
) -> None:
    url = str(tmp_path / "store")
    push(job, store, url, "t")
    embed(bert_folder, tmp_path / "c.jsonl", tmp_path / "other", prompt_name=None, normalize=False)
    with pytest.raises(HotbedError, match="holds other vectors than those of fingerprint"):
        push(tmp_path / "other", store, url, "t")
    assert len(_rows(url)) == 70


def test_an_unfinished_job_is_not_pushed(job: Path, tmp_path: Path) -> None:
    manifest = job / "_manifest.json"
    manifest.write_text(manifest.read_text().replace('"finished": true', '"finished": false'))
    text = manifest.read_text()
    first, last = text.index('"parts": ['), text.index('"number": 1')
    cut = text[last:].index("},\n    {") + last
    manifest.write_text(text[: text.rindex("{", first, last)] + text[cut + 2 :].lstrip())
    with pytest.raises(HotbedError, match="1 parts are not done yet"):
        push(job, "qdrant", str(tmp_path / "store"), "t")


def test_the_command_says_how_many_rows_are_there(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(tmp_path / "store")
    assert run("push", str(job), "--to", "qdrant", "--url", url) == 0
    assert capsys.readouterr().err == "70 rows pushed; vectors has 70 rows\n"
