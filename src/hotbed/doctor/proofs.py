"""Proofs: every attention backend and every family of models, against plain references."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from hotbed.core.errors import HotbedError
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.doctor.plain import plain_row, random_weights
from hotbed.doctor.report import Proof
from hotbed.doctor.tiny_models import MAX_TOKENS, MODELS, NORM_MEAN
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.attention.reference import reference
from hotbed.rose.attention.select import BACKENDS, AttentionSettings, select_backend
from hotbed.rose.batch import PackedBatch, pack
from hotbed.rose.buckets import step_config
from hotbed.rose.buffers import InputBuffers
from hotbed.rose.cpu import CpuRunner
from hotbed.rose.cuda import CudaRunner, CudaSettings
from hotbed.rose.device import dtype_name
from hotbed.rose.engine import Runner
from hotbed.rose.kernels.gemm import open_gemms
from hotbed.rose.layers.fused import with_gemms
from hotbed.rose.registry import FAMILIES, Model

# Relative to the largest element. fp32 sums in another order differ by some 1e-6; bfloat16 rounds
# to 2^-9, in two layers some ten times.
_LIMITS = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
# Around a tile of 64 or 128, and texts so short that a CPU takes its kernel for those.
_LENGTHS = (1, 17, 64, 130)
_SHORT_LENGTHS = (9, 3, 1)
# Of 4,096 tokens and more: what takes a kernel of its own on a GPU.
_LARGE = ((128,) * 32, (100,) * 40 + (99,))

SPECS = {
    "head dim 32": AttentionSpec(12, 12, 32, causal=False),
    "head dim 64": AttentionSpec(4, 4, 64, causal=False),
    "head dim 128": AttentionSpec(4, 2, 128, causal=False),
    "head dim 128, causal": AttentionSpec(4, 2, 128, causal=True),
    "head dim 64, window": AttentionSpec(4, 4, 64, causal=False, window=16),
}


def attention_proofs(device: torch.device, settings: AttentionSettings) -> list[Proof]:
    """One a backend, in the device's own dtype; fp64 attention is the reference."""
    return [_backend_proof(make(settings), device) for make in BACKENDS.values()]


def model_proofs(device: torch.device, settings: AttentionSettings) -> list[Proof]:
    """One of each of `MODELS`: small, random, in the runner of the device, against plain fp32."""
    return [_model_proof(family, device, settings) for family in MODELS]


def _backend_proof(backend: AttentionBackend, device: torch.device) -> Proof:
    what, dtype = f"attention {backend.name}", _dtype(device)
    ran: list[str] = []
    refused: dict[str, list[str]] = {}
    worst = 0.0
    for name, spec in SPECS.items():
        reason = backend.supports(spec, device, dtype)
        if reason is None:
            try:
                worst = _worse(worst, _attention_error(backend, spec, device, dtype))
                ran.append(name)
            except Exception as error:  # whatever a kernel of others raises is the finding
                reason = _said(error)
                worst = float("nan")
        if reason is not None:
            refused.setdefault(reason, []).append(name)
    why = [
        reason if len(names) == len(SPECS) else f"not {', '.join(names)}: {reason}"
        for reason, names in refused.items()
    ]
    limit = _LIMITS[dtype]
    return Proof(
        what=what,
        device=str(device),
        works=bool(ran) and worst <= limit,
        error=worst if ran else None,
        limit=limit if ran else None,
        detail="; ".join([f"{dtype_name(dtype)}, {'; '.join(ran)}"] * bool(ran) + why),
    )


def _attention_error(
    backend: AttentionBackend, spec: AttentionSpec, device: torch.device, dtype: torch.dtype
) -> float:
    batch = _packed(_LENGTHS, device)
    backend.prepare(spec, device)
    generator = torch.Generator(device).manual_seed(0)
    heads = spec.num_heads + 2 * spec.num_kv_heads
    shape = (len(batch.token_ids), heads, spec.head_dim)
    qkv = torch.randn(shape, generator=generator, device=device).to(dtype)
    q, k, v = qkv.split((spec.num_heads, spec.num_kv_heads, spec.num_kv_heads), dim=1)
    with torch.inference_mode():
        got = backend.run(q, k, v, backend.plan(batch, spec))
    offsets = batch.cu_seqlens.tolist()
    expected = reference(q, k, v, offsets, spec)
    return _relative(got[: offsets[-1]].double(), expected)


def _packed(lengths: tuple[int, ...], device: torch.device) -> PackedBatch:
    ragged = RaggedBatch.from_sequences([np.zeros(n, np.int32) for n in lengths])
    if device.type == "cpu":
        return pack(ragged)
    config = step_config(ragged.num_tokens, len(lengths), max(lengths), by_length=True)
    inputs = InputBuffers(config, device)
    ints = np.zeros(inputs.num_ints, np.int32)
    inputs.fill(ints, ragged)
    inputs.device_ints.copy_(torch.from_numpy(ints))
    return inputs.batch


def _model_proof(family: str, device: torch.device, settings: AttentionSettings) -> Proof:
    dtype = _dtype(device)
    limit = _LIMITS[dtype]
    try:
        error, how = _model_error(family, device, settings)
    except Exception as failure:  # a driver, a compiler, a kernel: all are findings here
        return Proof(what=f"model {family}", device=str(device), works=False, detail=_said(failure))
    return Proof(
        what=f"model {family}",
        device=str(device),
        works=error <= limit,
        error=error,
        limit=limit,
        detail=f"{dtype_name(dtype)}, {how}",
    )


def _model_error(
    family_name: str, device: torch.device, settings: AttentionSettings
) -> tuple[float, str]:
    config, recipe = MODELS[family_name]
    family, dtype = FAMILIES[family_name], _dtype(device)
    backends = [
        select_backend(spec, device, settings=settings, dtype=dtype)
        for spec in family.attention_specs(config)
    ]
    names = ", ".join(dict.fromkeys(backend.name for backend in backends)) or "its own"
    weights = random_weights(
        family.weight_map(config), device, norm_mean=NORM_MEAN.get(family_name, 1.0)
    )

    @torch.inference_mode()
    def build() -> Model:
        parameters = {n: t.to(dtype) for n, t in weights.items()}
        with with_gemms(open_gemms(settings.kernel_dir, device, dtype)):
            return family.build(config, parameters, backends)

    runner: Runner
    if device.type == "cuda":
        runner = CudaRunner(
            build(),
            recipe,
            device=device,
            settings=CudaSettings(),
            by_length=any(backend.grid_follows_max_seqlen for backend in backends),
            by_shape=any(backend.tells_shapes_apart for backend in backends),
        )
        how = f"attention {names}, eager, captured and replayed"
    else:
        runner = CpuRunner(build, recipe, max_tokens=MAX_TOKENS, num_threads=None)
        how = f"attention {names}, long and short steps"
    worst = 0.0
    random = np.random.default_rng(0)
    try:
        for lengths in (_LENGTHS, _SHORT_LENGTHS, *(_LARGE if device.type == "cuda" else ())):
            sequences = [random.integers(0, config.vocab_size, n).astype(np.int32) for n in lengths]
            expected = [
                plain_row(family_name, config, recipe, weights, torch.from_numpy(s).to(device))
                for s in sequences
            ]
            for got in _rows(runner, RaggedBatch.from_sequences(sequences)):
                worst = _worse(worst, _relative(got, torch.stack(expected).cpu()))
    finally:
        runner.close()
    return worst, how


def _rows(runner: Runner, batch: RaggedBatch) -> Iterator[Tensor]:
    segment = OutputSegment(0, batch.num_sequences, OutputSpec())
    for _ in range(3):
        yield torch.from_numpy(runner.submit(batch, (segment,)).result().rows[0])


def _relative(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).abs().max() / expected.abs().max())


def _worse(a: float, b: float) -> float:
    return float(np.maximum(a, b))  # NaN if one is


def _dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def _said(error: Exception) -> str:
    text = error.message if isinstance(error, HotbedError) else f"{type(error).__name__}: {error}"
    return text.strip().partition("\n")[0]
