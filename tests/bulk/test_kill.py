"""A job that is killed, at whatever point, and resumed leaves what an undisturbed one leaves."""

from __future__ import annotations

import functools
import multiprocessing
import random
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hotbed.bulk import read
from tests.bulk.jobs import embed, killed_at, result, texts, write_jsonl

# Children fork from a server that has imported torch once and started no thread.
_CONTEXT = multiprocessing.get_context("forkserver")


def _child(tick: int, model: Path, corpus: Path, out: Path, pipe: Connection) -> None:
    read.WINDOW_ROWS = 16
    options = {"rows_per_part": 50, "bad": "skip", "too_long": "chunk", "dedupe": True}
    job = functools.partial(embed, model, corpus, out, resume=True, **options)
    pipe.send(killed_at(tick, job))


def _run(tick: int, model: Path, corpus: Path, out: Path) -> int | None:
    """Ticks of a run that lived to its end; None: it was killed."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_child, args=(tick, model, corpus, out, theirs))
    process.start()
    theirs.close()
    process.join()
    if process.exitcode == -signal.SIGKILL:
        return None
    assert process.exitcode == 0
    ticks: int = ours.recv()
    return ticks


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"id": i, "text": text} for i, text in enumerate(texts(180))]
    rows[60]["text"] = ""
    rows[61]["text"] = None
    rows[130]["text"] = "fox " * 150
    rows[170]["text"] = rows[171]["text"]
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", rows)


@pytest.mark.parametrize("count", [5, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_a_killed_and_resumed_job_leaves_the_same_bytes(
    count: int, bert_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    _CONTEXT.set_forkserver_preload(["tests.bulk.jobs"])
    ticks = _run(-1, bert_folder, corpus, tmp_path / "undisturbed")
    assert ticks is not None
    expected = result(tmp_path / "undisturbed")
    assert sum(name.startswith("part-") for name in expected) == 4
    dice = random.Random(count)
    for point in range(count):
        out = tmp_path / f"killed-{point}"
        assert _run(dice.randint(1, ticks), bert_folder, corpus, out) is None
        _run(dice.randint(1, ticks), bert_folder, corpus, out)  # killed again, or just done
        _run(-1, bert_folder, corpus, out)
        assert result(out) == expected
    ids = pq.read_table(tmp_path / "killed-0")["id"].to_pylist()
    assert [i for i in range(180) if i not in (60, 61)] == list(dict.fromkeys(ids))
    assert ids.count(130) > 1
    assert len(ids) == 178 - 1 + ids.count(130)
