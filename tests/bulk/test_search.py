"""A look at the vectors of a job: the same rows as a comparison with all of them gives."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotbed import Embedder
from hotbed.bulk import search as module
from hotbed.bulk.search import model_of, search
from hotbed.core.errors import HotbedError
from tests.bulk.jobs import embed, texts, write_jsonl
from tests.support.checkpoints import make_bert
from tests.test_cli import run

TEXTS = texts(90)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prompts = {"query": "the quick ", "document": "a "}
    return make_bert(tmp_path_factory.mktemp("m") / "m", prompts=prompts)


def _job(model: Path, tmp_path: Path, dtype: str = "float32") -> Path:
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"i": i, "text": t} for i, t in enumerate(TEXTS)])
    out = tmp_path / "out"
    embed(model, corpus, out, rows_per_part=40, output_dtype=dtype, input_type="document")
    return out


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "binary"])
def test_the_nearest_rows_are_found(
    dtype: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_ROWS", 7)
    out = _job(model, tmp_path, dtype)
    hits = search(out, "lazy dog", 5, model_of(out))
    with Embedder(str(model)) as embedder:
        rows = embedder.embed(TEXTS, output_dtype=dtype, input_type="document")
        query = embedder.embed("lazy dog", output_dtype=dtype, input_type="query")
    if dtype == "binary":
        bits, wanted = np.unpackbits(rows.view(np.uint8), axis=1), np.unpackbits(query.view("u1"))
        scores = 1 - 2 * (bits != wanted).mean(axis=1)
    else:
        floats, wanted = rows.astype(np.float64), query.astype(np.float64)
        scores = floats @ wanted / np.linalg.norm(floats, axis=1) / np.linalg.norm(wanted)
    best = np.sort(scores)[::-1][:5]
    # Codes at a rounding border may differ by one between two batches.
    np.testing.assert_allclose(
        [h.score for h in hits], best, atol=1e-5 if dtype != "int8" else 1e-3
    )
    for hit in hits:
        assert hit.columns["text"] == TEXTS[hit.columns["i"]]
        assert (hit.file, hit.row) == (
            f"part-00000{hit.columns['i'] // 40}.parquet",
            hit.columns["i"] % 40,
        )


def test_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    out = _job(model, tmp_path)
    other = make_bert(tmp_path / "other", seed=9, prompts={"query": "the quick "})
    options = dataclasses.replace(model_of(out), model=str(other))
    with pytest.raises(HotbedError, match="does not make such vectors"):
        search(out, "dog", 1, options)


def test_rows_with_times_in_nanoseconds_are_shown(
    model: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    columns = {"text": ["a fox"], "at": pa.array([1_700_000_000_000_000_001], pa.timestamp("ns"))}
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    embed(model, tmp_path / "c.parquet", tmp_path / "out")
    assert run("search", str(tmp_path / "out"), "dog") == 0
    shown = json.loads(capfdbinary.readouterr().out)["columns"]
    assert shown == {"text": "a fox", "at": "2023-11-14T22:13:20"}


def test_a_part_that_is_gone_is_named(model: Path, tmp_path: Path) -> None:
    out = _job(model, tmp_path)
    (out / "part-000001.parquet").unlink()
    with pytest.raises(HotbedError, match=r"has lost part-000001\.parquet"):
        search(out, "dog", 1, model_of(out))


def test_a_folder_without_vectors_is_named(tmp_path: Path) -> None:
    with pytest.raises(HotbedError, match="holds no finished part"):
        model_of(tmp_path)


def test_the_command_prints_a_line_a_row(
    model: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    out = _job(model, tmp_path)
    assert run("search", str(out), "lazy dog", "-k", "2") == 0
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [set(line) for line in lines] == [{"score", "file", "row", "columns"}] * 2
    assert lines[0]["score"] >= lines[1]["score"]
    assert "embedding" not in lines[0]["columns"]
