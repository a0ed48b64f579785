"""Options of a job are refused before anything is loaded."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hotbed.bulk.options import JobOptions
from tests.test_cli import run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows_per_part": 0}, "--rows-per-part must be at least 1"),
        ({"shard": "3"}, "--shard must be i/n"),
        ({"shard": "4/4"}, "i goes from 0 to n - 1 = 3"),
        ({"concurrency": 0}, "--concurrency must be at least 1"),
        ({"endpoint": "http://x", "too_long": "chunk"}, "do not go with --endpoint"),
        ({"endpoint": "http://x", "dedupe": True}, "do not go with --endpoint"),
        ({"keep": ("embedding",)}, "--keep and --vector-column"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        JobOptions(out=Path("out"), **options)


def test_an_option_for_files_without_a_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="--too-long is for jobs that write a folder"):
        JobOptions(too_long="skip")


@pytest.mark.parametrize("option", ["--truncate", "--output=x.npy"])
def test_options_for_texts_do_not_go_with_files(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("embed", "x.jsonl", "--out", str(tmp_path), option) == 2
    assert "is for texts" in capsys.readouterr().err


def test_a_dash_is_standard_input(
    tmp_path: Path, bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = io.TextIOWrapper(io.BytesIO(b'{"body": "a fox"}\n'))
    monkeypatch.setattr("sys.stdin", lines)
    job = ("embed", "-", "--text", "body", "--format", "jsonl", "--model", str(bert_folder))
    assert run(*job, "--out", str(tmp_path / "out")) == 0
    assert pq.read_table(tmp_path / "out")["body"].to_pylist() == ["a fox"]


def test_ctrl_c_is_told_in_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hotbed.bulk.local.load_checkpoint", interrupted)
    (tmp_path / "a.csv").write_text("body\na fox\n")
    assert run("embed", str(tmp_path / "a.csv"), "--out", str(tmp_path / "out")) == 130
    assert capsys.readouterr().err == "hotbed: stopped\n"


def test_the_command_embeds_files(
    tmp_path: Path, bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("body\na fox\na dog\n")
    out = str(tmp_path / "out")
    job = ("embed", str(tmp_path / "a.csv"), "--text", "body", "--model", str(bert_folder))
    assert run(*job, "--out", out, "--keep", "body") == 0
    assert "2 rows in 1 parts" in capsys.readouterr().err
    assert run(*job, "--out", out, "--keep", "body", "--resume") == 0
    assert "nothing to do" in capsys.readouterr().err
    assert run(*job, "--out", out) == 2
    assert "--keep (was ['body'], now [])" in capsys.readouterr().err.replace("()", "[]").replace(
        "('body',)", "['body']"
    )
