"""Tokens per second and latency on a CPU, side by side: `python -m bench.cpu [--out FILE]`.

The same texts go to every system, in arrival order; rounds are interleaved so that a busy moment
hits all alike; medians are reported. Nothing is timed before every system's rows agree with
sentence-transformers' (cosine >= 0.9999 for each text).
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bench import peers
from hotbed.bench import rows
from hotbed.bench.texts import mixed_texts
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL

MODEL = "all-minilm-l6-v2"
MIN_COSINE = 0.9999
# suite: (texts a call, calls a round, rounds); the last takes minutes a round.
SUITES = {
    "cpu-1-short": (1, 30, 5),
    "cpu-1": (1, 30, 5),
    "cpu-32": (32, 4, 5),
    "cpu-1000": (1000, 1, 2),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="results file to append to")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "hotbed-onnx")
    parser.add_argument("--systems", nargs="*", help="only those whose name starts so")
    parser.add_argument("--suites", nargs="*", default=list(SUITES))
    arguments = parser.parse_args()

    folder = load_checkpoint(DEFAULT_MODEL).folder
    peers.export_onnx(folder, arguments.cache)
    wanted = peers.systems(folder, arguments.threads, arguments.cache)
    systems = [peers.Running(s) for s in wanted]
    reference = systems[0]
    texts = mixed_texts(1000)
    short = "what is the boiling point of water at high altitude"
    cosines = {id(s): check(s, reference, [*texts[:64], short]) for s in systems}
    if arguments.systems:
        systems = [s for s in systems if s.system.name.startswith(tuple(arguments.systems))]
    measured = []
    for suite in arguments.suites:
        count, calls, rounds = SUITES[suite]
        if suite == "cpu-1-short":
            inputs = [[short]] * calls
        else:
            inputs = [texts[i * count : (i + 1) * count] for i in range(calls)]
        measured += measure(suite, systems, inputs, rounds, cosines)
    columns = ["suite", "system", "n", "tokens", "p50_ms", "tokens_per_s", "cosine_min", "settings"]
    rows.show("CPU, all-MiniLM-L6-v2, fp32", measured, columns)
    if arguments.out:
        rows.append(arguments.out, measured)
    for running in systems:
        running.close()
    return 0


def check(running: peers.Running, reference: peers.Running, texts: list[str]) -> float:
    """Smallest cosine to the reference's rows; ends the run when it is too low."""
    (got, _), (expected, _) = running.embed(texts), reference.embed(texts)
    cosine = (
        (got * expected).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(expected, axis=1)
    )
    if not cosine.min() >= MIN_COSINE:
        sys.exit(
            f"{running.system.name}: cosine {cosine.min():.6f} to {reference.system.name}; "
            "nothing was timed"
        )
    return float(cosine.min())


def measure(
    suite: str,
    systems: list[peers.Running],
    inputs: list[list[str]],
    rounds: int,
    cosines: dict[int, float],
) -> list[dict[str, Any]]:
    """One row a system; rounds take turns, so that a busy moment hits all alike."""
    tokens = sum(count_tokens(texts) for texts in inputs)
    seconds: dict[int, list[float]] = {id(s): [] for s in systems}
    for running in systems:
        running.embed(inputs[0][:32])  # warm-up
    for _ in range(rounds):
        for running in systems:
            # Thread pools of the system before it spin on for a while, some for 0.1 s.
            time.sleep(0.3)
            seconds[id(running)] += [running.embed(texts)[1] for texts in inputs]
    made = []
    for running in systems:
        times = seconds[id(running)]
        # Median over the rounds of a whole round's time.
        total = float(np.median(np.reshape(times, (rounds, len(inputs))).sum(axis=1)))
        made.append(
            rows.row(
                suite,
                running.system.name,
                MODEL,
                n=len(inputs[0]),
                tokens=tokens // len(inputs),
                concurrency=1,
                **rows.percentiles(times),
                seq_per_s=round(sum(map(len, inputs)) / total, 1),
                tokens_per_s=round(tokens / total),
                cosine_min=round(cosines[id(running)], 6),
                settings=running.system.settings,
            )
        )
    return made


@functools.cache
def _tokenizer() -> Tokenizer:
    path = load_checkpoint(DEFAULT_MODEL).tokenizer.tokenizer_json
    tokenizer: Tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return tokenizer


def count_tokens(texts: list[str]) -> int:
    """Tokens of the texts as every system computes them, special tokens included."""
    return sum(len(encoding.ids) for encoding in _tokenizer().encode_batch(texts))


if __name__ == "__main__":
    sys.exit(main())
