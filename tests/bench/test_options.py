"""What the command line says of systems, and the words that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotbed.bench.options import BenchOptions, by_system, settings_by_system
from hotbed.bench.run import run
from hotbed.core.errors import HotbedError
from tests.test_cli import run as run_command

KNOWN = ("hotbed", "vllm")


def test_systems_may_be_given_with_commas_or_one_by_one() -> None:
    assert BenchOptions(systems=("hotbed,vllm", "tei", "vllm")).system_names == (
        "hotbed",
        "vllm",
        "tei",
    )


def test_settings_of_systems_are_read() -> None:
    words = ("vllm:PYTHONPATH=/a:/b=c", "vllm:X=", "hotbed:Y=1")
    assert settings_by_system(words, "env", KNOWN) == {
        "vllm": {"PYTHONPATH": "/a:/b=c", "X": ""},
        "hotbed": {"Y": "1"},
    }
    assert by_system(("vllm=/bin/python",), "python", KNOWN) == {"vllm": "/bin/python"}


@pytest.mark.parametrize("word", ["vllm", "vllm:X", "vllm=1", ":X=1", "vllm:=1"])
def test_a_setting_of_another_form_is_refused(word: str) -> None:
    with pytest.raises(HotbedError, match="--env"):
        settings_by_system((word,), "env", KNOWN)


@pytest.mark.parametrize("word", ["vllm", "vllm=", "tei=/bin/python"])
def test_an_interpreter_of_another_form_is_refused(word: str) -> None:
    with pytest.raises(HotbedError, match="--python"):
        by_system((word,), "python", KNOWN)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "rounds must be at least 1, got 0"),
        (["--seconds", "0"], "seconds must be above 0, got 0"),
        (["--systems", "vllm"], "hotbed is what others are held to"),
        (["--texts", "/no/such/file"], "--texts: "),
        (["--suite", "speed"], '"speed"'),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = ["--out", f"{tmp_path}/rows.jsonl"]
    assert run_command("bench", *arguments, *out) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_hotbed_is_always_measured() -> None:
    with pytest.raises(HotbedError, match="systems"):
        run(BenchOptions(systems=("vllm",)))
