"""Hotbed, its service and a stand-in for vLLM on tiny models, through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUBS = Path(__file__).parent / "stubs"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_suite_beside_vllm_with_equal_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = tmp_path / "texts.txt"
    # Sentences of their own: a stand-in for the tokenizer is trained on them.
    texts.write_text(" ".join(f"sentence {i} says {i * i} things." for i in range(2000)))
    out = tmp_path / "rows.jsonl"
    source = f"{ROOT / 'src'}:{ROOT}"
    script = (
        "import dataclasses; from hotbed.bench.systems import SYSTEMS\n"
        # On a machine without a GPU.
        "SYSTEMS['vllm'] = dataclasses.replace(SYSTEMS['vllm'], devices=('cpu',))\n"
        "from hotbed.cli import main; main()"
    )
    options = [
        *("--size", "tiny", "--device", "cpu", "--threads", "1", "--workers", "1"),
        *("--model", "pplx-embed-0.6b", "--model", "qwen3-reranker-0.6b"),
        *("--systems", "hotbed,vllm,tei", "--texts", str(texts), "--work", str(tmp_path / "work")),
        *("--seconds", "0.1", "--rounds", "2", "--warm-up-s", "0", "--out", str(out)),
        *("--clients", "2", "--env", f"vllm:PYTHONPATH={STUBS}:{source}"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", script, "bench", *options],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    measured = [r for r in rows if r["suite"] != "start"]
    assert all("error" not in r and "left_out" not in r for r in rows), rows
    cells = {
        (r["model"], r["system"], r["suite"], r["way"], r["n"], r["tokens"], r["concurrency"])
        for r in measured
    }
    assert len(cells) == len(measured)
    expected = {
        ("latency", "offline", 1, 8, 1),
        ("latency", "offline", 1, 32, 1),
        ("scoring", "offline", 3, 32, 1),
        ("throughput", "offline", 4, 16, 1),
    }
    asked_over_the_network = {
        ("concurrency", "http", 1, 16, 1),
        ("concurrency", "http", 1, 16, 2),
        ("throughput", "clients", 4, 16, 2),
    }
    for system in ("hotbed", "vllm"):
        found = {c[2:] for c in cells if c[:2] == ("pplx-embed-0.6b", system)}
        assert found == expected | asked_over_the_network
        assert {c[2:] for c in cells if c[:2] == ("qwen3-reranker-0.6b", system)} == expected
    # One in fp32, one in BF16 on the CPU's own terms: both are transformers' rows or near them.
    assert all(r["cosine_min"] > 0.9999 for r in measured if "embed" in r["model"])
    assert all(r["score_difference_max"] < 1e-4 for r in measured if "rerank" in r["model"])
    absent = [r for r in rows if r["suite"] == "start"]
    assert {(r["system"], r["absent"]) for r in absent} == {
        ("tei", "not installed here"),
        ("tei", "not measured with models that score"),
    }


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.timeout(600)
def test_the_default_model_beside_its_peers_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("fastembed")
    pytest.importorskip("gensim")
    out = tmp_path / "rows.jsonl"
    peers = ("sentence-transformers", "onnxruntime", "fastembed")
    options = [
        *("--size", "tiny", "--device", "cpu", "--threads", "1", "--workers", "1"),
        *("--systems", ",".join(("hotbed", *peers)), "--work", str(tmp_path / "work")),
        *("--seconds", "0.1", "--rounds", "2", "--warm-up-s", "0", "--out", str(out)),
        *("--clients", "2"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "hotbed.cli", "bench", *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(r["system"], r["suite"], r["way"]) for r in rows} == {
        *((system, suite, "offline") for system in ("hotbed", *peers)
          for suite in ("latency", "scoring", "throughput")),
        ("hotbed", "concurrency", "http"),
        ("hotbed", "throughput", "clients"),
    }  # fmt: skip
    for row in rows:
        assert row["model"] == "all-minilm-l6-v2"
        assert not row["random_weights"]
        assert row["cosine_min"] >= 0.9999
        assert row["cosine_reference"] >= 0.9999
        assert row["seq_per_s"] > 0
