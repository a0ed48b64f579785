"""Vectors of a bulk job and of the service it is queried through have one fingerprint."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.service import running
from tests.test_cli import run

pytestmark = pytest.mark.slow


def test_a_job_and_the_gateway_name_the_same_recipe_alike(
    bert_folder: Path, tmp_path: Path
) -> None:
    lines = tmp_path / "texts.jsonl"
    lines.write_text('{"body": "the cat"}\n{"body": "a fast cat"}\n')
    with running(tmp_path / "log", str(bert_folder)) as service:
        for number, wishes in enumerate(({}, {"dimensions": 8}, {"normalize": False})):
            asked = {"input": "the cat", **wishes}
            answer = httpx.post(f"{service.base_url}/v1/embeddings", json=asked, timeout=60)
            out = tmp_path / str(number)
            options = {"dimensions": ["--dimensions", "8"], "normalize": ["--no-normalize"]}
            flags = [word for name in wishes for word in options[name]]
            job = ["embed", str(lines), "--text", "body", "--out", str(out)]
            assert run(*job, "--model", str(bert_folder), *flags) == 0
            manifest = json.loads((out / "_manifest.json").read_text())
            found = manifest["recipe"]["fingerprint"]
            assert found == answer.headers["x-hotbed-fingerprint"], wishes
