"""A text's bytes alone and in any batch, on one card: `python -m bench.invariance`.

    python -m bench.invariance --kernel-dir kernels --seconds 120 --out invariance-h200.jsonl

Three families in the models' shapes, seeded random weights, built with `invariant`. A pool of
sequences of many lengths is embedded one at a time, eagerly; then random batches of them, in random
order and place, eager and replayed, in every bucket that comes up: each row must be the same bytes.
Half of the batches come in --repeats of the same sizes with other texts, so that graphs replay.
Then a second runner of the same weights (a replica), and what the mode costs: device time of steps
against the usual mode, in turn. A difference is named, and nothing is timed after one.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench import engine
from hotbed.bench import rows
from hotbed.bench.shapes import SHAPES
from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.compute import Compute
from hotbed.rose.cuda import CudaRunner
from hotbed.rose.graphs import CaptureMode

MODELS = ("qwen3-embedding-0.6b", "pplx-embed-0.6b", "bge-m3")
SIZES = ((1, 32), (1, 128), (1, 512), (25, 512), (100, 512), (100, 4096))
INVARIANT = Compute(torch.bfloat16, invariant=True)
LENGTHS = (
    *range(1, 34),
    *(63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 383, 384, 500),
    *(511, 512, 513, 640, 767, 1000, 1023, 1024, 1025, 2000, 4096),
)
# Most tokens of a batch, drawn anew for each.
STEP_TOKENS = (1024, 2048, 4096, 16_000)
# The default form, and one that is cut, normalised again, and rounded on the device.
FORMS = (OutputSpec(), OutputSpec(dimensions=256, dtype=OutputDtype.FLOAT32, normalize=True))


@dataclass
class Pool:
    """Sequences, and the bytes of each alone in two forms."""

    sequences: list[np.ndarray]
    alone: list[tuple[bytes, bytes]]


def embed(runner: CudaRunner, sequences: list[np.ndarray], form: int) -> list[bytes]:
    batch, n = RaggedBatch.from_sequences(sequences), len(sequences)
    done = runner.submit(batch, (OutputSegment(0, n, FORMS[form]),)).result()
    assert done.finite.all(), "a row is not finite"
    return [row.tobytes() for row in done.rows[0]]


def embed_alone(runner: CudaRunner, sequences: list[np.ndarray]) -> list[tuple[bytes, bytes]]:
    return [(embed(runner, [s], 0)[0], embed(runner, [s], 1)[0]) for s in sequences]


def make_pool(runner: CudaRunner, vocab_size: int, random: np.random.Generator) -> Pool:
    lengths = [n for n in LENGTHS for _ in range(2 if n > 1000 else 4)]
    sequences = [random.integers(0, vocab_size, n).astype(np.int32) for n in lengths]
    runner.capture_mode = CaptureMode.OFF
    alone = embed_alone(runner, sequences)
    runner.capture_mode = CaptureMode.LAZY
    return Pool(sequences, alone)


def draw(pool: Pool, random: np.random.Generator) -> list[int]:
    """Indices of a batch: few or many, of all lengths, of short ones, or of one length."""
    kind, count = random.integers(0, 4), int(2 ** random.uniform(0, 8))
    lengths = np.array([len(s) for s in pool.sequences])
    candidates = np.arange(len(lengths))
    if kind == 1:
        candidates = candidates[lengths <= 64]
    elif kind == 2:
        candidates = candidates[lengths == random.choice([8, 64, 128, 256, 512, 1024])]
    chosen = random.choice(candidates, count)
    fits = np.cumsum(lengths[chosen]) <= random.choice(STEP_TOKENS)
    return list(chosen[: max(1, int(fits.sum()))])


def differences(
    runner: CudaRunner, pool: Pool, seconds: float, most: int, random: np.random.Generator
) -> tuple[int, int, list[str]]:
    """(batches, rows compared, what differs: the first few)."""
    end, num_batches, num_rows, found = time.monotonic() + seconds, 0, 0, []
    by_length: dict[int, list[int]] = {}
    for index, sequence in enumerate(pool.sequences):
        by_length.setdefault(len(sequence), []).append(index)
    drawn: list[int] = []
    while time.monotonic() < end and num_batches < most and len(found) < 5:
        if num_batches % 4 < 2:
            drawn = draw(pool, random)
        else:  # the same lengths, other texts in another order: the same graph
            drawn = [int(random.choice(by_length[len(pool.sequences[i])])) for i in drawn]
            random.shuffle(drawn)
        # Forms change every four batches: both meet texts drawn anew, seen sizes and eager steps.
        eager, form = num_batches % 8 == 7 or num_batches % 24 == 3, num_batches // 4 % 2
        runner.capture_mode = CaptureMode.OFF if eager else CaptureMode.LAZY
        got = embed(runner, [pool.sequences[i] for i in drawn], form)
        for place, (index, row) in enumerate(zip(drawn, got, strict=True)):
            if row != pool.alone[index][form]:
                x, y = (np.frombuffer(bits, np.float32) for bits in (row, pool.alone[index][form]))
                found.append(
                    f"batch {num_batches} ({'eager' if eager else 'lazy'}): sequence of "
                    f"{len(pool.sequences[index])} tokens at {place} of {len(drawn)}, form "
                    f"{form}: {int((x != y).sum())} of {len(x)} values, up to "
                    f"{np.abs(x - y).max():.1e}; lengths "
                    f"{[len(pool.sequences[i]) for i in drawn][:40]}"
                )
        num_batches, num_rows = num_batches + 1, num_rows + len(drawn)
    runner.capture_mode = CaptureMode.LAZY
    return num_batches, num_rows, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel-dir", type=Path, help="without one the slower kernels are tested")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=120, help="of random batches, a family")
    parser.add_argument("--batches", type=int, default=10_000, help="the most, a family")
    parser.add_argument("--sizes", type=engine._size, nargs="*", default=list(SIZES))
    parser.add_argument("--step-tokens", type=int, default=8192)
    parser.add_argument("--model-reps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="for the rows, where the tree is no git checkout")
    options = parser.parse_args()
    settings = AttentionSettings(kernel_dir=options.kernel_dir)
    commit, failed = options.commit or rows.commit(), False
    for name in options.models:
        random = np.random.default_rng(options.seed)
        shape = SHAPES[name]
        runner, backend, weights = engine.build(shape, settings, INVARIANT)
        cosine = engine.check(shape, runner, weights)
        del weights
        pool = make_pool(runner, shape.config.vocab_size, random)
        again = embed_alone(runner, pool.sequences)
        wrong = [
            len(s) for s, a, b in zip(pool.sequences, pool.alone, again, strict=True) if a != b
        ]
        if wrong:
            print(f"{name}: alone twice, lengths that differ: {sorted(set(wrong))}", flush=True)
        replica, _, weights = engine.build(shape, settings, INVARIANT)
        del weights
        share = options.seconds / 2
        reports = {
            "first": differences(runner, pool, share, options.batches // 2, random),
            "replica": differences(replica, pool, share, options.batches // 2, random),
        }
        num_batches = sum(report[0] for report in reports.values())
        num_rows = sum(report[1] for report in reports.values())
        found = [line for report in reports.values() for line in report[2]]
        print(
            f"{name}: {backend}, cosine >= {cosine:.6f}, {num_batches} batches, {num_rows} rows, "
            f"{runner.counters}: {'EQUAL' if not found and not wrong else 'DIFFERENT'}",
            *found,
            sep="\n  ",
            flush=True,
        )
        replica.close()
        del replica
        fields: dict[str, Any] = {"commit": commit, "device": torch.cuda.get_device_name()}
        measured = [
            rows.row(
                "invariance",
                "hotbed",
                name,
                n=num_batches,
                num_rows=num_rows,
                num_different=len(found) + len(wrong),
                cosine_min=round(cosine, 6),
                settings=f"{backend}, kernels {'ahead of time' if options.kernel_dir else 'none'}",
                **fields,
            )
        ]
        if found or wrong:
            failed = True
        else:
            usual, usual_backend, weights = engine.build(shape, settings)
            del weights
            runners = {"usual": usual, "invariant": runner}
            for n, length in options.sizes:
                step = max(length, min(n * length, options.step_tokens))
                best: dict[str, dict[str, Any]] = {}
                for _ in range(options.model_reps):
                    for label, one in runners.items():
                        result = engine.time_size(one, n, length, step)
                        if label not in best or result["device_ms"] < best[label]["device_ms"]:
                            best[label] = result
                for label, result in best.items():
                    how = (
                        f"bf16 {label}, attention {usual_backend if label == 'usual' else backend}"
                    )
                    measured.append(
                        engine.gpu_row(
                            name, n=n, tokens=length, **result, settings=how, commit=commit
                        )
                    )
                times = {label: result["device_ms"] for label, result in best.items()}
                cost = times["invariant"] / times["usual"] - 1
                print(f"  {n}x{length}: {times} ms, {cost:+.1%}", flush=True)
            usual.close()
        if options.out is not None:
            rows.append(options.out, measured)
        runner.close()
        del runner
        torch.cuda.empty_cache()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
