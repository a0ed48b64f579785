"""Bulk jobs: every row once, in order, with its columns; refusals that say what is wrong."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotbed import Embedder
from hotbed.bulk import job as job_module
from hotbed.bulk import parts, read
from hotbed.core.errors import ErrorCode, HotbedError
from tests.bulk.jobs import embed, result, texts, write_jsonl
from tests.support.checkpoints import make_bert


def vectors(out: Path, column: str = "embedding") -> np.ndarray:
    table = pq.read_table(out)
    width = table.schema.field(column).type.list_size
    values = table[column].combine_chunks()
    return values.flatten().to_numpy().reshape(-1, width)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "WINDOW_ROWS", 16)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [{"id": i, "body": text} for i, text in enumerate(texts(100))]
    return write_jsonl(tmp_path / "corpus.jsonl", rows)


def test_rows_keep_order_and_columns_and_equal_the_embedders(
    bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    embed(bert_folder, corpus, out, text="body", rows_per_part=30)
    table = pq.read_table(out)
    assert table["id"].to_pylist() == list(range(100))
    assert table["body"].to_pylist() == texts(100)
    with Embedder(str(bert_folder), num_threads=1) as embedder:
        np.testing.assert_allclose(vectors(out), embedder.embed(texts(100)), atol=1e-6)
    assert sorted(p.name for p in out.glob("part-*")) == [
        f"part-00000{i}.parquet" for i in range(4)
    ]


def test_the_recipe_lies_with_the_vectors(bert_folder: Path, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    embed(bert_folder, corpus, out, text="body", dimensions=16)
    schema = pq.read_schema(out / "part-000000.parquet")
    recipe = json.loads(schema.metadata[b"hotbed.recipe"])
    manifest = json.loads((out / "_manifest.json").read_text())
    assert recipe == manifest["recipe"]
    assert recipe["dimensions"] == 16
    fingerprint = schema.field("embedding").metadata[b"hotbed.fingerprint"].decode()
    assert fingerprint == recipe["fingerprint"]


def test_a_model_with_a_dense_module_gives_its_width(corpus: Path, tmp_path: Path) -> None:
    model = make_bert(tmp_path / "m", dense=[(24, "torch.nn.modules.linear.Identity", True)])
    embed(model, corpus, tmp_path / "out", text="body")
    assert vectors(tmp_path / "out").shape == (100, 24)
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["recipe"]["dimensions"] == 24


@pytest.mark.parametrize(
    ("dtype", "arrow", "width"),
    [
        ("float32", pa.float32(), 64),
        ("float16", pa.float16(), 64),
        ("int8", pa.int8(), 64),
        ("binary", pa.int8(), 8),
        ("ubinary", pa.uint8(), 8),
    ],
)
def test_every_output_dtype_can_be_read_back(
    dtype: str, arrow: Any, width: int, bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    embed(bert_folder, corpus, out, text="body", output_dtype=dtype)
    kind = pq.read_table(out).schema.field("embedding").type
    assert (kind.value_type, kind.list_size) == (arrow, width)
    with Embedder(str(bert_folder), num_threads=1) as embedder:
        expected = embedder.embed(texts(100), output_dtype=dtype)
    if dtype.startswith("float"):
        np.testing.assert_allclose(vectors(out), expected, atol=1e-3)
    else:  # a sum in another order may cross a border now and then
        assert (vectors(out) == expected).mean() > 0.999


def test_a_finished_job_is_not_done_again(bert_folder: Path, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    embed(bert_folder, corpus, out, text="body")
    before = {p: p.stat().st_mtime_ns for p in out.iterdir()}
    for resume in (False, True):
        said = embed(bert_folder, corpus, out, text="body", resume=resume)
        assert said.startswith("nothing to do: the job is finished")
    assert {p: p.stat().st_mtime_ns for p in out.iterdir()} == before


def test_a_part_that_was_deleted_is_made_again(
    bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    embed(bert_folder, corpus, out, text="body", rows_per_part=30)
    expected = result(out)
    (out / "part-000002.parquet").unlink()
    with pytest.raises(HotbedError, match=r"3 of 4 parts are done.*--resume"):
        embed(bert_folder, corpus, out, text="body", rows_per_part=30)
    embed(bert_folder, corpus, out, text="body", rows_per_part=30, resume=True)
    assert result(out) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"text": "id2"}, r"--text \(was 'body', now 'id2'\)"),
        ({"dimensions": 8}, r"dimensions \(was 64, now 8\); fingerprint"),
        ({"normalize": False}, "normalize"),
        ({"dedupe": True}, "--dedupe"),
        ({"rows_per_part": 7}, "--rows-per-part"),
    ],
)
def test_another_recipe_or_option_is_refused(
    options: dict[str, Any], said: str, bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    embed(bert_folder, corpus, out, text="body")
    expected = result(out)
    with pytest.raises(HotbedError, match=said):
        embed(bert_folder, corpus, out, resume=True, **({"text": "body"} | options))
    assert result(out) == expected


def test_other_weights_under_the_same_name_are_refused(corpus: Path, tmp_path: Path) -> None:
    model = make_bert(tmp_path / "m", seed=1)
    embed(model, corpus, tmp_path / "out", text="body")
    make_bert(tmp_path / "m", seed=2)
    with pytest.raises(HotbedError, match="fingerprint"):
        embed(model, corpus, tmp_path / "out", text="body", resume=True)


def test_a_changed_input_is_refused(bert_folder: Path, corpus: Path, tmp_path: Path) -> None:
    embed(bert_folder, corpus, tmp_path / "out", text="body")
    with corpus.open("a") as file:
        file.write('{"id": 100, "body": "a dog"}\n')
    with pytest.raises(HotbedError, match=r"corpus\.jsonl \(has changed\)"):
        embed(bert_folder, corpus, tmp_path / "out", text="body", resume=True)


def test_a_bad_row_fails_with_its_line_and_the_job_goes_on_when_told_to_skip(
    bert_folder: Path, tmp_path: Path
) -> None:
    lines = [json.dumps({"text": text}) for text in texts(50)]
    lines[40] = '{"text": '
    lines[41] = '{"text": " "}'
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(lines))
    out = tmp_path / "out"
    with pytest.raises(HotbedError, match=r"corpus\.jsonl, line 41: the line is no valid JSON"):
        embed(bert_folder, corpus, out, rows_per_part=20)
    assert len(json.loads((out / "_manifest.json").read_text())["parts"]) == 2
    said = embed(bert_folder, corpus, out, rows_per_part=20, bad="skip", resume=True)
    assert "2 parts were done before" in said
    assert "1 left out, no text in them" in said
    assert "1 left out, broken" in said
    assert pq.read_table(out).num_rows == 48
    problems = [json.loads(p) for p in (out / "_problems-000002.jsonl").read_text().splitlines()]
    assert [(p["line"], p["problem"], p["action"]) for p in problems] == [
        (41, "broken", "skipped"),
        (42, "empty", "skipped"),
    ]
    report = json.loads((out / "_report.json").read_text())
    assert report["rows"]["read"] == 50
    assert report["rows"]["written"] == 48
    assert report["skipped"] == 2


@pytest.mark.parametrize(
    ("policy", "num_rows", "said"),
    [
        ("truncate", 20, "1 truncated to the model's limit"),
        ("skip", 19, "1 left out, too long"),
        ("chunk", 24, "1 too long, a row for each part"),
    ],
)
def test_a_long_text_follows_the_policy(
    policy: str, num_rows: int, said: str, bert_folder: Path, tmp_path: Path
) -> None:
    rows = [{"id": i, "text": text} for i, text in enumerate(texts(20))]
    rows[7]["text"] = " ".join(f"{word} fox" for word in texts(1, max_words=3) * 50)
    corpus = write_jsonl(tmp_path / "corpus.jsonl", rows)
    with pytest.raises(HotbedError, match=r"line 8: text has \d+ tokens, the limit is 64"):
        embed(bert_folder, corpus, tmp_path / "out")
    out = tmp_path / policy
    assert said in embed(bert_folder, corpus, out, too_long=policy)
    table = pq.read_table(out)
    if policy == "chunk":
        of_long = table.filter(pa.compute.equal(table["id"], 7)).to_pylist()
        num_rows = 19 + len(of_long)
        assert [row["chunk"] for row in of_long] == list(range(len(of_long)))
        pieces = [row["text"] for row in of_long]
        places = [(row["chunk_start"], row["chunk_stop"]) for row in of_long]
        assert [rows[7]["text"][start:stop] for start, stop in places] == pieces
        others = table.filter(pa.compute.not_equal(table["id"], 7))["text"].to_pylist()
        assert others == [row["text"] for row in rows if row["id"] != 7]
        assert " ".join(pieces) == rows[7]["text"]
        with Embedder(str(bert_folder), num_threads=1) as embedder:
            alone = embedder.embed(pieces)
        np.testing.assert_allclose([row["embedding"] for row in of_long], alone, atol=1e-6)
    assert table.num_rows == num_rows
    if policy == "truncate":
        with Embedder(str(bert_folder), num_threads=1) as embedder:
            alone = embedder.embed(rows[7]["text"], truncate=True)
        np.testing.assert_allclose(vectors(out)[7], alone, atol=1e-6)


def test_a_book_does_not_become_its_length_squared(bert_folder: Path, tmp_path: Path) -> None:
    """With the whole text in each of its rows the table was too large for memory, and for Arrow."""
    book = " ".join(texts(1, max_words=2) * 200_000)
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"text": book}, {"text": "a fox"}])
    embed(bert_folder, corpus, tmp_path / "out", too_long="chunk")
    made = pq.read_table(tmp_path / "out")
    assert made.num_rows > 3000
    assert sum(map(len, made["text"].to_pylist())) < len(book) + 10


def test_shares_together_give_the_whole(bert_folder: Path, corpus: Path, tmp_path: Path) -> None:
    embed(bert_folder, corpus, tmp_path / "whole", text="body", rows_per_part=15)
    for i in (2, 0, 1):
        embed(
            bert_folder, corpus, tmp_path / "shared", text="body", rows_per_part=15, shard=f"{i}/3"
        )
    whole, shared = result(tmp_path / "whole"), result(tmp_path / "shared")
    parts = [name for name in whole if name.startswith("part-")]
    assert len(parts) == 7
    assert {name: shared[name] for name in parts} == {name: whole[name] for name in parts}


def test_equal_texts_are_computed_once(bert_folder: Path, tmp_path: Path) -> None:
    few = texts(5)
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": few[i % 5]} for i in range(100)])
    said = embed(bert_folder, corpus, tmp_path / "out", dedupe=True, rows_per_part=60)
    assert "90 of a text computed before" in said  # five a part are computed
    with Embedder(str(bert_folder), num_threads=1) as embedder:
        expected = embedder.embed(few)
    np.testing.assert_allclose(vectors(tmp_path / "out"), np.tile(expected, (20, 1)), atol=1e-6)


def test_standard_input_is_kept_until_the_job_is_done(
    bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"a fox\n\na dog\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    with pytest.raises(HotbedError, match=r"_stdin\.lines, line 2: text holds no text"):
        embed(bert_folder, ["-"], tmp_path / "out")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    embed(bert_folder, ["-"], tmp_path / "out", bad="skip", resume=True)
    table = pq.read_table(tmp_path / "out")
    assert table.select(["line", "text"]).to_pylist() == [
        {"line": 1, "text": "a fox"},
        {"line": 3, "text": "a dog"},
    ]
    assert not list((tmp_path / "out").glob("_stdin*"))


def test_a_folder_with_other_files_is_left_alone(
    bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(HotbedError, match=r"is no folder of vectors: it holds corpus\.jsonl"):
        embed(bert_folder, corpus, tmp_path, text="body")


def test_two_processes_do_not_work_on_one_job(
    bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (
        job_module.locked(out / "_lock.json"),
        pytest.raises(HotbedError, match="another process works on this job"),
    ):
        embed(bert_folder, corpus, out, text="body")


def test_an_interrupted_job_says_how_to_go_on(
    bert_folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(parts.PartsWriter, "_finish", interrupted)
        with pytest.raises(HotbedError, match="--resume goes on") as caught:
            embed(bert_folder, corpus, tmp_path / "out", text="body")
    assert caught.value.code is ErrorCode.CANCELLED
    assert not list((tmp_path / "out").glob("*part-*"))
    embed(bert_folder, corpus, tmp_path / "out", text="body", resume=True)
    assert pq.read_table(tmp_path / "out").num_rows == 100
