"""The command on a card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hotbed.doctor import run
from hotbed.rose.registry import FAMILIES

pytestmark = pytest.mark.gpu


def test_a_card_is_proved_and_its_model_runs(
    bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.run(str(bert_folder), device="cuda", as_json=True) == 0
    report = json.loads(capsys.readouterr().out)
    proofs = {p["what"]: p for p in report["proofs"]}
    for what in ("attention varlen", *(f"model {family}" for family in FAMILIES)):
        assert proofs[what]["works"], proofs[what]
    assert report["ceilings"][0]["matmul_flops"] > 1e12
    assert report["driver"]
