"""Tokens per second and latency on a CPU, side by side: `python -m bench.cpu [--out FILE]`.

The same texts go to every system, in arrival order; rounds are interleaved so that a busy moment
hits all alike; medians are reported. Nothing is timed before every system's rows agree with
sentence-transformers' (cosine >= 0.9999 for each text).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench import peers, rows
from bench.texts import mixed_texts

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
    arguments = parser.parse_args()

    # Before torch is loaded by a peer: the engine's own OpenMP setting, for all alike.
    import hotbed.rose  # noqa: F401
    from hotbed.checkpoint.load import load_checkpoint
    from hotbed.core.defaults import DEFAULT_MODEL

    folder = load_checkpoint(DEFAULT_MODEL).folder
    threads = arguments.threads
    systems = [
        peers.sentence_transformers(folder, threads),
        peers.hotbed(folder, threads),
        peers.onnxruntime(folder, threads, arguments.cache, sort=False),
        peers.onnxruntime(folder, threads, arguments.cache, sort=True),
        peers.fastembed(folder, threads, arguments.cache),
    ]
    reference = systems[0]
    if arguments.systems:
        systems = [s for s in systems if s.name.startswith(tuple(arguments.systems))]
    texts = mixed_texts(1000)
    short = "what is the boiling point of water at high altitude"
    cosines = {s.name + s.settings: check(s, reference, [*texts[:64], short]) for s in systems}
    measured = []
    for suite, (count, calls, rounds) in SUITES.items():
        if suite == "cpu-1-short":
            inputs = [[short]] * calls
        else:
            inputs = [texts[i * count : (i + 1) * count] for i in range(calls)]
        measured += measure(suite, systems, inputs, rounds, cosines)
    columns = ["suite", "system", "n", "tokens", "p50_ms", "tokens_per_s", "cosine_min", "settings"]
    rows.show("CPU, all-MiniLM-L6-v2, fp32", measured, columns)
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


def check(system: peers.System, reference: peers.System, texts: list[str]) -> float:
    """Smallest cosine to the reference's rows; ends the run when it is too low."""
    got, expected = system.embed(texts), reference.embed(texts)
    cosine = (
        (got * expected).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(expected, axis=1)
    )
    if not cosine.min() >= MIN_COSINE:
        sys.exit(f"{system.name}: cosine {cosine.min():.6f} to {reference.name}; nothing was timed")
    return float(cosine.min())


def measure(
    suite: str,
    systems: list[peers.System],
    inputs: list[list[str]],
    rounds: int,
    cosines: dict[str, float],
) -> list[dict[str, Any]]:
    from tokenizers import Tokenizer

    from hotbed.checkpoint.load import load_checkpoint
    from hotbed.core.defaults import DEFAULT_MODEL

    tokenizer = Tokenizer.from_file(str(load_checkpoint(DEFAULT_MODEL).tokenizer.tokenizer_json))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    tokens = sum(len(e.ids) for i in inputs for e in tokenizer.encode_batch(i))
    seconds: dict[str, list[float]] = {s.name + s.settings: [] for s in systems}
    totals: dict[str, list[float]] = {s.name + s.settings: [] for s in systems}
    for system in systems:
        system.embed(inputs[0][:32])  # warm-up
    for _ in range(rounds):
        for system in systems:
            key = system.name + system.settings
            round_start = time.perf_counter()
            for texts in inputs:
                start = time.perf_counter()
                system.embed(texts)
                seconds[key].append(time.perf_counter() - start)
            totals[key].append(time.perf_counter() - round_start)
    made = []
    for system in systems:
        key = system.name + system.settings
        total = float(np.median(totals[key]))
        made.append(
            rows.row(
                suite,
                system.name,
                MODEL,
                n=len(inputs[0]),
                tokens=tokens // len(inputs),
                concurrency=1,
                **rows.percentiles(seconds[key]),
                seq_per_s=round(sum(map(len, inputs)) / total, 1),
                tokens_per_s=round(tokens / total),
                cosine_min=round(cosines[key], 6),
                settings=system.settings,
            )
        )
    return made


if __name__ == "__main__":
    sys.exit(main())
