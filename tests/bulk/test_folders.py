"""The folder of a job: who may write there, what a full disk leaves, and where inputs may lie."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hotbed.bulk import durable
from hotbed.core.errors import ErrorCode, HotbedError
from tests.bulk.jobs import embed, result, texts, write_jsonl


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [{"id": i, "body": text} for i, text in enumerate(texts(100))]
    return write_jsonl(tmp_path / "corpus.jsonl", rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shard": "0/2"}, r"_manifest\.json\); it differs in shares \(was 1, now 2\)"),
        ({"shard": "0/2", "dimensions": 8}, r"dimensions \(was 64, now 8\)"),
        ({"shard": "1/3", "rows_per_part": 50}, r"rows_per_part \(was 30, now 50\)"),
    ],
)
def test_a_share_does_not_write_over_another_jobs_parts(
    options: dict[str, Any], said: str, bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    embed(bert_folder, corpus, tmp_path / "out", text="body", rows_per_part=30)
    before = result(tmp_path / "out")
    with pytest.raises(HotbedError, match=said):
        embed(
            bert_folder, corpus, tmp_path / "out", text="body", **{"rows_per_part": 30, **options}
        )
    assert result(tmp_path / "out") == before


def test_the_whole_does_not_write_over_a_share(
    bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    embed(bert_folder, corpus, tmp_path / "out", text="body", rows_per_part=30, shard="0/2")
    with pytest.raises(HotbedError, match=r"shares \(was 2, now 1\)"):
        embed(bert_folder, corpus, tmp_path / "out", text="body", rows_per_part=30)


def test_parts_of_an_unknown_job_are_left_alone(
    bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    for name in ("part-000000.parquet", "part-00000-5e1f.snappy.parquet", "_SUCCESS"):
        out = tmp_path / name.replace(".", "-")
        out.mkdir()
        (out / name).write_text("someone's")
        with pytest.raises(HotbedError, match=f"is no folder of vectors: it holds {name}"):
            embed(bert_folder, corpus, out, text="body")
        assert (out / name).read_text() == "someone's"


def test_a_folder_inside_the_input_is_no_input(
    bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "vectors"
    embed(bert_folder, tmp_path, out, text="body")
    assert "nothing to do" in embed(bert_folder, tmp_path, out, text="body")
    with pytest.raises(HotbedError, match="no file of a known format"):
        embed(bert_folder, out, out, text="body")
    with pytest.raises(HotbedError, match="lies in --out"):
        embed(bert_folder, out / "part-000000.parquet", out, text="body", resume=True)


@pytest.mark.parametrize("where", ["corpus.jsonl", "corpus.jsonl/below"])
def test_a_folder_that_cannot_be_made_is_named(
    where: str, bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(HotbedError, match=rf"--out .*{where}: (File exists|Not a directory)"):
        embed(bert_folder, corpus, tmp_path / where, text="body")


@pytest.mark.parametrize("room", [0, 4_000, 40_000])
def test_a_full_disk_is_named_and_the_job_goes_on_when_there_is_room(
    room: int, bert_folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = room
    write = durable.DurableFile.write

    def until_full(file: Any, data: bytes | memoryview) -> int:
        nonlocal left
        left -= len(data)
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)

    with monkeypatch.context() as patched:
        patched.setattr(durable.DurableFile, "write", until_full)
        with pytest.raises(HotbedError, match=r"--out .*: No space left on device.*--resume") as e:
            embed(bert_folder, corpus, tmp_path / "out", text="body", rows_per_part=30)
    assert e.value.code is ErrorCode.UNAVAILABLE
    assert not list((tmp_path / "out").glob("_tmp-*"))
    embed(bert_folder, corpus, tmp_path / "out", text="body", rows_per_part=30, resume=True)
    embed(bert_folder, corpus, tmp_path / "whole", text="body", rows_per_part=30)
    assert result(tmp_path / "out") == result(tmp_path / "whole")
    assert pq.read_table(tmp_path / "out").num_rows == 100
