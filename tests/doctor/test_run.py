"""The command, run for real on this machine's CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hotbed.cli import app
from hotbed.core.errors import HotbedError
from hotbed.doctor import machine, run
from hotbed.doctor.report import Ceilings
from hotbed.rose.attention.sdpa import SdpaBackend
from hotbed.rose.kernels import files
from hotbed.rose.kernels.cpu.build import CannotCompileError
from hotbed.rose.models import gemma3
from hotbed.rose.registry import FAMILIES
from tests.support.checkpoints import make_bert
from tests.support.tiny_tokenizers import byte_level_bpe


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the seconds that the ceilings take."""
    some = Ceilings(
        device="cpu",
        read_bytes_per_s=1e9,
        copy_bytes_per_s=1e9,
        matmul_flops=1e9,
        matmul_dtype="float32",
    )
    monkeypatch.setattr(run, "measure_ceilings", lambda device: some)


def _report(
    capsys: pytest.CaptureFixture[str], *arguments: Any, **options: Any
) -> tuple[int, dict[str, Any]]:
    code = run.run(*(arguments or (None,)), device="cpu", as_json=True, **options)
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, report


def test_the_command_proves_what_works_and_measures_the_ceilings(bert_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hotbed.cli", "doctor", bert_folder, *["--device", "cpu", "--json"]],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["can_serve"]
    assert report["versions"]["torch"] == torch.__version__
    assert report["devices"][-1]["device"] == "cpu"
    (ceilings,) = report["ceilings"]
    assert 1e8 < ceilings["read_bytes_per_s"] < 1e13
    assert 1e8 < ceilings["copy_bytes_per_s"] < 1e13
    assert 1e8 < ceilings["matmul_flops"] < 1e14
    proofs = {p["what"]: p for p in report["proofs"]}
    assert {f"model {family}" for family in FAMILIES} < proofs.keys()
    for what in ("attention sdpa", *(f"model {family}" for family in FAMILIES)):
        assert proofs[what]["works"], proofs[what]
        assert 0 < proofs[what]["error"] < 1e-4
    assert not proofs["attention varlen"]["works"]
    assert "CUDA" in proofs["attention varlen"]["detail"]
    assert report["model"]["step_ms"] > 0
    assert report["model"]["step_tokens"] == 2048
    assert report["model"]["calibration"] is None


@pytest.mark.usefixtures("quick")
def test_calibrating_stores_the_knee_and_the_next_run_shows_it(
    bert_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(run, "SIZES", (16, 64))
    code, report = _report(capsys, str(bert_folder), calibrating=True)
    assert code == 0
    made = report["model"]["calibration"]
    assert [t["num_tokens"] for t in made["times"]] == [16, 64]
    assert len(list((tmp_path / "hotbed" / "calibration").iterdir())) == 1
    _, later = _report(capsys, str(bert_folder))
    assert later["model"]["calibration"] == made
    assert later["model"]["step_tokens"] == made["step_tokens"]
    assert run.run(str(bert_folder), device="cpu") == 0
    text = capsys.readouterr().out
    assert f"steps of {made['step_tokens']} tokens, the knee measured on" in text
    assert text.endswith("Models can be served here.\n")


@pytest.mark.usefixtures("quick")
def test_a_backend_that_computes_something_else_is_not_served(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = SdpaBackend.run
    monkeypatch.setattr(SdpaBackend, "run", lambda *a: right(*a) * 1.01)
    code, report = _report(capsys)
    assert code == 1
    proofs = {p["what"]: p for p in report["proofs"]}
    assert not proofs["attention sdpa"]["works"]
    assert proofs["attention sdpa"]["error"] > proofs["attention sdpa"]["limit"]
    assert not proofs["model bert"]["works"]
    assert proofs["model mpnet"]["works"], "it has attention of its own"


@pytest.mark.usefixtures("quick")
def test_a_named_model_hangs_on_its_own_family_alone(
    bert_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = gemma3.Gemma3.forward
    monkeypatch.setattr(gemma3.Gemma3, "forward", lambda *a: right(*a) * 1.01 + 0.1)
    code, report = _report(capsys)
    assert code == 1
    assert [p["what"] for p in report["proofs"] if "model" in p["what"] and not p["works"]] == [
        "model gemma3"
    ]
    assert _report(capsys, str(bert_folder))[0] == 0


@pytest.mark.usefixtures("quick")
def test_nan_is_no_proof_and_no_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = SdpaBackend.run
    monkeypatch.setattr(SdpaBackend, "run", lambda *a: right(*a) * float("nan"))
    code, report = _report(capsys)
    assert code == 1
    proved = [p["what"] for p in report["proofs"] if p["works"]]
    assert proved == ["model deberta", "model jina_bert", "model mpnet", "model t5"], (
        "they have attention of their own"
    )


@pytest.mark.usefixtures("quick")
def test_a_kernel_that_raises_is_a_finding_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no kernel image is available\nlong story")

    monkeypatch.setattr(SdpaBackend, "run", fail)
    assert run.run(None, device="cpu") == 1
    text = capsys.readouterr().out
    assert "RuntimeError: no kernel image is available" in text
    assert "long story" not in text
    assert text.endswith("Not every family of models can be served here.\n")


@pytest.mark.usefixtures("quick")
def test_a_model_that_cannot_be_served_gives_1_and_says_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, report = _report(capsys, str(tmp_path / "nothing"))
    assert code == 1
    assert "nothing" in report["model_error"]
    assert report["model"] is None


@pytest.mark.usefixtures("quick")
def test_a_tokenizer_that_does_not_fit_the_model_is_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The engine alone takes ids: it was called servable, and the gateway refused to start."""
    folder = make_bert(tmp_path / "m", vocab_size=100)
    byte_level_bpe(append_end=True).save(str(folder / "tokenizer.json"))
    code, report = _report(capsys, str(folder))
    assert code == 1
    assert "vocab_size is 100" in report["model_error"]


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(HotbedError, match="cuda:99"):
        run.run(None, device="cuda:99")


@pytest.mark.usefixtures("quick")
def test_what_is_missing_comes_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Path) -> Any:
        raise CannotCompileError("there is no C compiler")

    monkeypatch.setattr(machine, "load_library", fail)
    installed = machine.versions()
    monkeypatch.setattr(machine, "versions", lambda: installed | {"nanotoken": None})
    code, report = _report(capsys)
    assert code == 0, "slower, but it serves"
    commands = [m["command"] for m in report["missing"]]
    assert commands == ["apt install gcc libc6-dev", "pip install 'hotbed[fast-tokenizers]'"]


def test_a_hopper_without_kernels_is_told_how_to_build_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(files, "runtime", lambda: None)
    installed = machine.versions()
    monkeypatch.setattr(machine, "versions", lambda: installed | {"triton": None})
    found = machine.missing(torch.device("cuda", 0), run.AttentionSettings())
    assert [m.command for m in found if "tokenizers" not in m.what] == [
        "pip install 'hotbed[gpu]'",
        "pip install 'hotbed[gpu]'",
        "python -m hotbed.rose.build_kernels --out DIR",
    ]
    assert [m.is_needed for m in found][:3] == [True, False, False]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    found = machine.missing(torch.device("cuda", 0), run.AttentionSettings())
    assert [m.what for m in found if "tokenizers" not in m.what] == ["triton"]


def test_calibrate_is_a_switch_and_the_model_stands_by_itself() -> None:
    _, bound, _ = app.parse_args(["doctor", "--calibrate", "a-model", "--kernel-dir", "x"])
    assert bound.arguments == {"model": "a-model", "calibrate": True, "kernel_dir": Path("x")}
