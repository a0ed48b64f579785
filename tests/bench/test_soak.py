"""The soak in small, on this machine's CPU; and that it sees what it is there to see."""

from __future__ import annotations

import numpy as np
import pytest

from bench import soak
from hotbed.core.step import StepResult
from hotbed.rose.cpu import CpuRunner

SMALL = ["--device", "cpu", "--max-tokens", "300", "--max-length", "90"]


def test_random_batches_give_the_references_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main([*SMALL, "--steps", "60"]) == 0
    assert capsys.readouterr().out.endswith("PASS\n")


def test_a_row_that_comes_twice_is_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = CpuRunner._run

    def swapped(self: CpuRunner, *args: object) -> StepResult:
        result = run(self, *args)  # type: ignore[arg-type]
        return StepResult([np.roll(r, 1, axis=0) for r in result.rows], result.finite)

    monkeypatch.setattr(CpuRunner, "_run", swapped)
    assert soak.main([*SMALL, "--steps", "20"]) == 1
    assert "cosine_min" in capsys.readouterr().out
