"""The command line: quick help, one clear line for what is wrong, rows that can be read back."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from hotbed import __version__
from hotbed.cli import main
from hotbed.ivy.settings import IvySettings
from hotbed.serve.settings import IVY_FIELDS_OF_SERVE, TULIP_FIELDS_OF_SERVE, ServeSettings
from hotbed.tulip.settings import TulipSettings


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def options(record: type, prefix: str = "") -> set[str]:
    return {f"--{prefix}{field.name.replace('_', '-')}" for field in fields(record)}


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_help_imports_nothing_heavy() -> None:
    # torch alone takes seconds; a person who asks for help waits for none of it.
    script = """
import sys
from hotbed.cli import main
try:
    main(["serve", "--help"])
except SystemExit as ended:
    assert ended.code == 0, ended.code
heavy = {"torch", "numpy", "grpc", "tokenizers", "uvicorn", "asyncio"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("tulip", options(TulipSettings)),
        ("ivy", options(IvySettings)),
        ("serve", options(ServeSettings)),
    ],
)
def test_every_setting_is_an_option_with_a_text(
    command: str, expected: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    for option in expected:
        (line,) = [line for line in lines if f" {option} " in line]
        assert len(line.strip("│ ").split("  ")) > 1, f"{option} has no text"


def test_serve_offers_the_rooms_options_but_not_what_it_decides_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("serve", "--help")
    shown = {word for word in capsys.readouterr().out.split() if word.startswith("--")}
    for record, prefix, owned in (
        (TulipSettings, "tulip.", TULIP_FIELDS_OF_SERVE),
        (IvySettings, "ivy.", IVY_FIELDS_OF_SERVE),
    ):
        not_offered = {f"--{prefix}{name.replace('_', '-')}" for name in owned}
        assert options(record, prefix) - not_offered <= shown
        assert not not_offered & shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--prot", "1"], "Unknown option: --prot. Did you mean --port?"),
        (["serve", "--tulip.listen", "unix:/x"], "Unknown option: --tulip.listen"),
        (["serve", "--port", "x"], 'Invalid value for --port: unable to convert "x" into int.'),
        (["serve", "--port", "70000"], "port must be 0 to 65535, got 70000"),
        (["serve", "--replicas", "0"], "replicas must be at least 1, got 0"),
        (["serve", "--threads", "0"], "threads must be at least 1, got 0"),
        (["serve", "--workers", "-1"], "workers must be at least 1, got -1"),
        (["serve", "--drain-timeout-s", "nan"], "drain_timeout_s must be above 0, got nan"),
        (["serve", "--host", ""], "host is empty"),
        (["serve", ""], "model is empty"),
        (["serve", "--worker-ports", "0"], "worker_ports must be 1 to 65535, got 0"),
        (["serve", "one", "two"], "'two'"),
        (["serve", "--tulip.max-step-sequences", "0"], "max_step_sequences must be at least 1"),
        (["tulip", "--max-queue-tokens", "1"], "is above max_queue_tokens (1)"),
        (["ivy", "--replicas", "a:1", "--replicas", "a:1"], "an address is listed twice"),
        (["embed", "x", "--output-dtype", "int4"], '"int4"'),
        (["sreve"], "sreve"),
    ],
)
def test_wrong_options_give_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.startswith("hotbed: ")
    assert err.count("\n") == 1


def test_embed_prints_a_json_line_a_text(
    bert_folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run("embed", "a", "b c", "--model", str(bert_folder), "--dimensions", "8") == 0
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [line["index"] for line in lines] == [0, 1]
    rows = np.array([line["embedding"] for line in lines])
    assert rows.shape == (2, 8)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("dash", [(), ("-",)])
def test_embed_reads_a_text_a_line_and_writes_the_array_it_was_told(
    dash: tuple[str, ...], bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_argument, by_line = tmp_path / "rows.npy", tmp_path / "rows.bin"
    model = ("--model", str(bert_folder), "--output-dtype", "float16")
    assert run("embed", "a", "b c", *model, "--output", str(by_argument)) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("a\r\nb c\n"))
    assert run("embed", *dash, *model, "--output", str(by_line)) == 0
    rows = np.load(by_argument)
    assert rows.dtype == np.float16
    assert len(rows) == 2
    np.testing.assert_array_equal(np.load(by_line), rows)


@pytest.mark.parametrize("output_dtype", ["float16", "int8", "binary", "ubinary"])
def test_embed_prints_every_dtype_as_the_array_holds_it(
    bert_folder: Path,
    tmp_path: Path,
    output_dtype: str,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    arguments = ("embed", "a", "--model", str(bert_folder), "--output-dtype", output_dtype)
    assert run(*arguments) == 0
    printed = json.loads(capfdbinary.readouterr().out)["embedding"]
    assert run(*arguments, "--output", str(tmp_path / "rows.npy")) == 0
    stored = np.load(tmp_path / "rows.npy")[0]
    np.testing.assert_array_equal(np.array(printed, dtype=stored.dtype), stored)


def test_embed_refuses_a_blank_text_by_its_index_without_repeating_texts(
    bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("embed", "secret words", "  ", "--model", str(bert_folder)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "input[1]" in err
    assert "secret" not in err


def test_unknown_model_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("embed", "x", "--model", "no-such-model") == 2
    err = capsys.readouterr().err
    assert err.startswith("hotbed: 'no-such-model' ")
    assert err.count("\n") == 1


def test_reader_that_leaves_early_is_no_traceback(bert_folder: Path) -> None:
    # As in `hotbed embed ... | head -1`; here nobody reads at all.
    command = [sys.executable, "-m", "hotbed.cli", "embed", "a", "--model", str(bert_folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
