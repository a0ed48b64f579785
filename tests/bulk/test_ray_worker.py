"""What a worker on a Ray cluster does, without Ray: it makes the parts that it is given."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import msgspec
import pytest

from hotbed.bulk.durable import DurableFile
from hotbed.bulk.local import ModelOptions
from hotbed.bulk.manifest import Manifest, load_manifest
from hotbed.bulk.ray_worker import PartWorker
from hotbed.core.errors import ErrorCode, HotbedError
from tests.bulk.jobs import embed, result, texts, write_jsonl


@pytest.fixture
def job(bert_folder: Path, tmp_path: Path) -> Manifest:
    """A finished job of five parts, to be made again elsewhere."""
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": text} for text in texts(50)])
    embed(bert_folder, corpus, tmp_path / "out", rows_per_part=10)
    manifest = load_manifest(tmp_path / "out" / "_manifest.json")
    assert manifest is not None
    return manifest


def _worker(bert_folder: Path, **options: object) -> PartWorker:
    return PartWorker(os.getcwd(), ModelOptions(model=str(bert_folder), threads=1, **options))  # type: ignore[arg-type]


def test_the_parts_that_it_takes_are_those_of_the_job(
    job: Manifest, bert_folder: Path, tmp_path: Path
) -> None:
    worker = _worker(bert_folder)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    worker.work(folder, job)
    parts = {}
    for numbers in ([3], [0, 4]):
        worker.take(numbers)
        while not set(numbers) <= parts.keys():
            news = worker.news()
            assert news.failed is None
            parts |= {w.part.number: w.part for w in news.written if w.part is not None}
    assert list(parts.values()) == [job.parts[number] for number in (3, 0, 4)]
    expected = result(tmp_path / "out")
    assert result(folder) == {part.file: expected[part.file] for part in parts.values()}


def test_a_row_at_fault_is_told_with_its_line(
    job: Manifest, bert_folder: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("".join('{"text": ""}\n' for _ in range(50)))
    status = corpus.stat()
    source = msgspec.structs.replace(
        job.sources[0], size=status.st_size, mtime_ns=status.st_mtime_ns
    )
    worker = _worker(bert_folder)
    worker.work(tmp_path, msgspec.structs.replace(job, sources=[source], marks=[]))
    worker.take([2])
    failed = worker.news().failed
    assert failed is not None
    assert failed.message.startswith(f"{corpus}, line 21: text holds no text")
    assert not list(tmp_path.glob("*part-*"))


def test_vectors_of_another_fingerprint_are_refused(
    job: Manifest, bert_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(HotbedError, match="its vectors have fingerprint"):
        _worker(bert_folder, dimensions=8).work(tmp_path, job)


def test_a_folder_that_is_not_on_its_machine_is_named(bert_folder: Path) -> None:
    worker = PartWorker("/not/here", ModelOptions(model=str(bert_folder)))
    with pytest.raises(HotbedError, match="/not/here: No such file or directory"):
        worker.recipe()


def test_a_full_disk_is_named(
    job: Manifest, bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DurableFile, "write", full)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # it is in the worker's log too
    worker = _worker(bert_folder)
    worker.work(tmp_path, job)
    worker.take([0])
    news = worker.news()
    assert news.failed is not None
    assert news.failed.code is ErrorCode.UNAVAILABLE
    assert "--out: No space left on device" in news.failed.message
    assert not list(tmp_path.glob("_tmp-*"))
