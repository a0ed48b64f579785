"""Random batches for a long time: `python -m bench.soak --steps 10000`, under two minutes on a GPU.

Small seeded models of every head dim take turns. Texts come from a pool whose rows were computed in
plain fp32; a step takes a random selection of them, in a random form, with up to three steps in
flight, under a bound on graphs so small that they are evicted all the time. Every row must have a
cosine of 0.999 or more to its reference, on a GPU those of some steps also to an eager runner; and
device memory must be flat once the first third is over. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.reference import reference_row
from hotbed.bench import rows
from hotbed.bench.shapes import Shape, random_weights
from hotbed.checkpoint.records import BertConfig, DecoderConfig
from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import StepResult
from hotbed.rose.attention.select import AttentionSettings, select_backend
from hotbed.rose.cpu import CpuRunner
from hotbed.rose.cuda import CudaRunner, CudaSettings
from hotbed.rose.engine import Runner
from hotbed.rose.graphs import CaptureMode
from hotbed.rose.kernels.gemm import open_gemms
from hotbed.rose.layers.fused import with_gemms
from hotbed.rose.recipe import Recipe
from hotbed.rose.registry import FAMILIES

MIN_COSINE = 0.999
MAX_GROWTH = 0.03
MAX_GROWTH_BYTES = 64 << 20
POOL = 300
IN_FLIGHT = 3
VOCABULARY = 1000
EAGER_SHARE = 0.1
IDLE_SHARE = 0.01
POPULAR_SHARE = 0.75


def _bert(heads: int, hidden: int) -> BertConfig:
    return BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=heads,
        intermediate_size=2 * hidden,
        max_position_embeddings=2050,
    )


def _qwen3(heads: int, kv_heads: int, head_dim: int, *, causal: bool) -> DecoderConfig:
    return DecoderConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=512,
        max_position_embeddings=2048,
        rope_theta=1e6,
        is_causal=causal,
        qk_norm=True,
    )


SHAPES = (
    Shape(
        "bidirectional hd128",
        "decoder",
        _qwen3(4, 2, 128, causal=False),
        Recipe("mean", False, "pplx"),
    ),
    Shape("causal hd128", "decoder", _qwen3(4, 2, 128, causal=True), Recipe("last", True, "none")),
    Shape("causal hd64", "decoder", _qwen3(4, 2, 64, causal=True), Recipe("last", True, "none")),
    Shape("bert hd64", "bert", _bert(4, 256), Recipe("cls", True, "none")),
    Shape("bert hd32", "bert", _bert(12, 384), Recipe("mean", True, "none")),
)


@dataclass
class Subject:
    """One model: its runner, one that never captures, and its pool of texts."""

    shape: Shape
    runner: Runner
    eager: Runner | None
    texts: list[np.ndarray]
    expected: np.ndarray


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--max-tokens", type=int, default=8192, help="of a step")
    parser.add_argument("--max-length", type=int, default=2048, help="of a text")
    parser.add_argument("--max-graphs", type=int, default=24, help="of a model")
    parser.add_argument("--capture", default="lazy", choices=[mode.value for mode in CaptureMode])
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--kernel-dir", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="for the row, where the tree is no git checkout")
    arguments = parser.parse_args(argv)
    device = torch.device(arguments.device)
    random = np.random.default_rng(arguments.seed)
    subjects = [_subject(shape, device, arguments, random) for shape in SHAPES]
    result = soak(subjects, device, arguments, random)
    for subject in subjects:
        if isinstance(subject.runner, CudaRunner):
            print(f"{subject.shape.name}: {subject.runner.counters}", flush=True)
        for runner in (subject.runner, subject.eager):
            if runner is not None:
                runner.close()
    print(result, flush=True)
    if arguments.out and not result["failures"]:
        fields = {"device": torch.cuda.get_device_name()} if device.type == "cuda" else {}
        made = rows.row(
            "soak",
            "hotbed",
            "small seeded models",
            **{k: v for k, v in result.items() if k != "failures"},
            commit=arguments.commit or rows.commit(),
            settings=f"capture {arguments.capture}, {arguments.max_graphs} graphs a model",
            **fields,
        )
        rows.append(arguments.out, [made])
    print("FAIL" if result["failures"] else "PASS", flush=True)
    return 1 if result["failures"] else 0


def _subject(
    shape: Shape, device: torch.device, arguments: argparse.Namespace, random: np.random.Generator
) -> Subject:
    family = FAMILIES[shape.family]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    settings = AttentionSettings(arguments.attention, arguments.kernel_dir)
    (spec,) = family.attention_specs(shape.config)
    backend = select_backend(spec, device, settings=settings, dtype=dtype)
    weights = random_weights(shape, device)

    @torch.inference_mode()
    def build() -> Any:
        parameters = {n: t.to(dtype) for n, t in weights.items()}
        with with_gemms(open_gemms(arguments.kernel_dir, device, dtype)):
            return family.build(shape.config, parameters, [backend])

    eager: Runner | None = None
    runner: Runner
    if device.type == "cuda":
        model = build()

        def cuda(mode: CaptureMode) -> CudaRunner:
            return CudaRunner(
                model,
                shape.recipe,
                device=device,
                settings=CudaSettings(capture=mode, max_graphs=arguments.max_graphs),
                by_length=backend.grid_follows_max_seqlen,
                by_shape=backend.tells_shapes_apart,
            )

        runner, eager = cuda(CaptureMode(arguments.capture)), cuda(CaptureMode.OFF)
    else:
        runner = CpuRunner(build, shape.recipe, max_tokens=arguments.max_length, num_threads=None)
    # Most texts are short; each length up to the longest occurs.
    lengths = np.exp(random.uniform(0, np.log(arguments.max_length), POOL)).astype(int)
    lengths[:6] = [1, 2, 63, 64, 65, arguments.max_length]
    texts = [random.integers(0, VOCABULARY, max(1, n)).astype(np.int32) for n in lengths]
    with torch.inference_mode():
        expected = [
            reference_row(shape, weights, torch.from_numpy(t).to(device)).cpu().numpy()
            for t in texts
        ]
    print(f"{shape.name}: attention {backend.name}", flush=True)
    return Subject(shape, runner, eager, texts, np.stack(expected))


@dataclass
class _Flying:
    subject: Subject
    chosen: list[int]
    segments: list[OutputSegment]
    future: Future[StepResult]
    eager: Future[StepResult] | None


def soak(
    subjects: list[Subject],
    device: torch.device,
    arguments: argparse.Namespace,
    random: np.random.Generator,
) -> dict[str, Any]:
    """Run the steps; what was seen, with the failures in words."""
    flying: deque[_Flying] = deque()
    failures: list[str] = []
    worst = {"cosine_min": 1.0, "eager_cosine_min": 1.0}
    memory: list[tuple[int, int]] = []
    # Shapes that come again and again, so that graphs are replayed, among those that do not.
    popular = [_choose(s, arguments.max_tokens, random) for s in subjects for _ in range(8)]
    start = time.perf_counter()
    num_sequences = 0

    def collect() -> None:
        step = flying.popleft()
        failures.extend(_check(step, worst))

    for number in range(arguments.steps):
        index = int(random.integers(len(subjects)))
        subject = subjects[index]
        if random.random() < POPULAR_SHARE:
            chosen = popular[index * 8 + int(random.integers(8))]
            chosen = list(random.permutation(chosen))
        else:
            chosen = _choose(subject, arguments.max_tokens, random)
        num_sequences += len(chosen)
        batch = RaggedBatch.from_sequences([subject.texts[i] for i in chosen])
        segments = _segments(len(chosen), random)
        is_compared = subject.eager is not None and random.random() < EAGER_SHARE
        flying.append(
            _Flying(
                subject,
                chosen,
                segments,
                subject.runner.submit(batch, segments),
                subject.eager.submit(batch, segments) if subject.eager and is_compared else None,
            )
        )
        while len(flying) >= int(random.integers(1, IN_FLIGHT + 1)):
            collect()
        if random.random() < IDLE_SHARE:
            while flying:
                collect()
            subject.runner.idle()
        if number % max(1, arguments.steps // 12) == 0:
            memory.append(_memory(device))
            if len(failures) > 20:
                break
    while flying:
        collect()
    memory.append(_memory(device))
    for what, values in zip(("reserved", "used"), zip(*memory, strict=True), strict=True):
        settled = values[len(values) // 3 :]
        print(f"{what} MiB: {[v >> 20 for v in values]}", flush=True)
        growth = settled[-1] - settled[0]
        if device.type == "cuda" and growth > max(MAX_GROWTH * settled[0], MAX_GROWTH_BYTES):
            failures.append(f"{what} memory grew by {growth >> 20} MiB after the first third")
    for failure in failures[:20]:
        print(failure, flush=True)
    seconds = time.perf_counter() - start
    return {
        "n": arguments.steps,
        "sequences": num_sequences,
        "seconds": round(seconds, 1),
        **{name: round(value, 6) for name, value in worst.items()},
        "failures": len(failures),
    }


def _choose(subject: Subject, max_tokens: int, random: np.random.Generator) -> list[int]:
    """Texts of a step: few or many, small or up to the budget."""
    budget = np.exp(random.uniform(0, np.log(max_tokens)))
    most = int(np.exp(random.uniform(0, np.log(257))))
    chosen: list[int] = []
    for index in random.permutation(len(subject.texts)).tolist() * 2:
        if len(chosen) == most:
            break
        length = len(subject.texts[index])
        if length <= budget or not chosen:
            chosen.append(index)
            budget -= length
    return chosen


FORMS = (
    OutputSpec(dimensions=64, normalize=True),
    OutputSpec(normalize=False),
    OutputSpec(dtype=OutputDtype.FLOAT16),
)


def _segments(num_sequences: int, random: np.random.Generator) -> list[OutputSegment]:
    if num_sequences < 2 or random.random() < 0.7:
        return [OutputSegment(0, num_sequences, OutputSpec())]
    cut = int(random.integers(1, num_sequences))
    form = FORMS[int(random.integers(len(FORMS)))]
    parts = [OutputSegment(0, cut, OutputSpec()), OutputSegment(cut, num_sequences, form)]
    if random.random() < 0.5:
        parts = [
            OutputSegment(0, cut, form),
            OutputSegment(cut, num_sequences, OutputSpec()),
        ]
    return parts


def _check(step: _Flying, worst: dict[str, float]) -> list[str]:
    failures = []
    where = f"{step.subject.shape.name}, {len(step.chosen)} texts {step.chosen[:5]}"
    try:
        result = step.future.result()
        eager = step.eager.result() if step.eager else None
    except Exception as error:
        return [f"{where}: {type(error).__name__}: {error}"]
    if not result.finite.all():
        failures.append(f"{where}: a row is not finite")
    for index, segment in enumerate(step.segments):
        got = result.rows[index].astype(np.float64)
        chosen = step.chosen[segment.start : segment.stop]
        expected = step.subject.expected[chosen][:, : got.shape[1]]
        pairs = [("cosine_min", expected)]
        if eager is not None:
            pairs.append(("eager_cosine_min", eager.rows[index].astype(np.float64)))
        for name, other in pairs:
            # The largest angle of the segment; NaN compares as false and is a failure.
            cosine = float(_cosines(got, other).min())
            worst[name] = min(worst[name], cosine)
            if not cosine >= MIN_COSINE:
                failures.append(f"{where}, {segment}: {name} {cosine:.6f}")
        if segment.spec.normalize and not np.allclose(np.linalg.norm(got, axis=1), 1, atol=1e-3):
            failures.append(f"{where}, {segment}: rows are not normalised")
    return failures


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def _memory(device: torch.device) -> tuple[int, int]:
    """Bytes that torch has reserved, and that the device (on a CPU: this process) uses."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return torch.cuda.memory_reserved(device), total - free
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return 0, pages * 4096


if __name__ == "__main__":
    sys.exit(main())
