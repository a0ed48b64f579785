"""A text's bytes are the same alone, in any batch and place, in any bucket, eager and replayed.

On the fake card all is real but what a card computes: attention and the folder's GEMMs stand in,
each giving a row or a sequence its own bits; a product that went past the GEMMs would be BLAS's,
whose bits change with the batch. `bench.invariance` shows the same on a card.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.errors import HotbedError
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.attention.fa4 import Fa4Backend
from hotbed.rose.attention.reference import reference
from hotbed.rose.attention.select import AttentionSettings, select_backend
from hotbed.rose.batch import PackedBatch
from hotbed.rose.compute import Compute
from hotbed.rose.cuda import CudaRunner
from hotbed.rose.engine import RoseEngine
from hotbed.rose.kernels import files, gemm
from hotbed.rose.kernels.gemm import FusedGemms
from hotbed.rose.layers.dense import Dense
from hotbed.rose.layers.fused import Mode, with_mode
from hotbed.rose.recipe import Recipe
from hotbed.rose.registry import FAMILIES
from tests.rose.fake_cuda import FakeCuda
from tests.rose.kernels.fake_gemms import FakeRuntime, fill
from tests.rose.layers.test_fused import BERT, QWEN3
from tests.support.families import make_family

SPECS = (OutputSpec(), OutputSpec(dimensions=24))


class PerSequence:
    """Attention of each sequence from its own tokens alone, as FlashAttention 4 in one tile."""

    def plan(self, batch: PackedBatch, spec: AttentionSpec) -> tuple[list[int], AttentionSpec]:
        return batch.cu_seqlens.tolist(), spec

    def run(self, q: Tensor, k: Tensor, v: Tensor, plan: tuple[list[int], AttentionSpec]) -> Tensor:
        offsets, spec = plan
        out = torch.zeros_like(q, memory_format=torch.contiguous_format)
        for start, stop in itertools.pairwise(offsets):
            if start < stop:
                part = (x[start:stop] for x in (q, k, v))
                out[start:stop] = reference(*part, [0, stop - start], spec).to(q.dtype)
        return out


def _weights(family: str, config: Any) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return {
        name: (
            torch.randn(p.shape, generator=generator) / p.shape[-1] ** 0.5 + (len(p.shape) == 1)
        ).bfloat16()
        for name, p in FAMILIES[family].weight_map(config).parameters.items()
    }


def _runner(
    family: str,
    config: Any,
    recipe: Recipe,
    folder: Path,
    card: FakeCuda,
    mode: Callable[..., Mode],
) -> CudaRunner:
    gemms = FusedGemms(folder, torch.device("cpu"), min_rows=gemm.ALL_ROWS)
    with with_mode(mode(gemms)):
        model = FAMILIES[family].build(config, _weights(family, config), [PerSequence()])
    return card.runner(model, recipe, max_tokens=64)


def _rows(runner: CudaRunner, sequences: list[Any]) -> list[list[bytes]]:
    """Bytes of each sequence's row, in each of the forms."""
    batch = RaggedBatch.from_sequences(sequences)
    forms = [
        runner.submit(batch, (OutputSegment(0, len(sequences), spec),)).result().rows[0]
        for spec in SPECS
    ]
    return [[row.tobytes() for row in rows] for rows in zip(*forms, strict=True)]


def _dense(width: int) -> tuple[Dense, ...]:
    generator = torch.Generator().manual_seed(3)
    return (Dense(torch.randn(32, width, generator=generator), None, "tanh"),)


@pytest.mark.parametrize(
    ("family", "config", "recipe"),
    [
        ("decoder", QWEN3, Recipe("last", True, "none", fixed=True)),
        ("decoder", QWEN3, Recipe("mean", False, "pplx", fixed=True)),
        ("bert", BERT, Recipe("cls", True, "none", _dense(64), fixed=True)),
    ],
    ids=["last", "mean", "cls and Dense"],
)
def test_on_a_card(
    family: str, config: Any, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    if torch.cuda.is_available():
        pytest.skip("the fake card is for machines without one")
    runtime = FakeRuntime(by_row=True)
    monkeypatch.setitem(sys.modules, "tvm_ffi", runtime)
    card = FakeCuda(monkeypatch)
    from hotbed.rose.kernels import launchers

    # The interpreter's products are BLAS's, too.
    monkeypatch.setattr(launchers, "fixed_gemm", _product_by_row)
    monkeypatch.setattr(torch.nn.functional, "linear", _never)
    monkeypatch.setattr(Tensor, "addmm_", _never)
    runner = _runner(
        family, config, recipe, fill(tmp_path), card, lambda g: Mode(g, invariant=True)
    )
    random = np.random.default_rng(0)
    lengths = (1, 5, 33)  # the interpreter is slow
    pool = [random.integers(0, 50, n).astype(np.int32) for n in lengths]
    alone = [_rows(runner, [sequence])[0] for sequence in pool]
    eager = runner.counters.eager
    for count in (2, 2, 2):
        chosen = random.choice(len(pool), count)
        got = _rows(runner, [pool[i] for i in chosen])
        for index, forms in zip(chosen, got, strict=True):
            assert forms == alone[index], (
                f"{lengths[index]} tokens, with {lengths_of(chosen, pool)}"
            )
    counters = runner.counters
    runner.close()
    assert eager
    assert counters.replayed, "some steps were replayed"


def lengths_of(chosen: Any, pool: list[Any]) -> list[int]:
    return [len(pool[i]) for i in chosen]


def _product_by_row(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = [row[None] @ weight.T for row in x]
    return torch.cat(rows) if bias is None else torch.cat(rows) + bias


@pytest.mark.parametrize("family", ["bert", "llama", "modernbert"])
def test_on_a_cpu(family: str, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(str(make_family(tmp_path / "m", family)))
    engine = RoseEngine.load(checkpoint, device="cpu", invariant=True, num_threads=1)
    random = np.random.default_rng(1)
    vocabulary, longest = engine.info.vocab_size, engine.info.max_tokens
    lengths = [n for n in (1, 7, 31, 33, 64, 100) if n <= longest]
    pool = [random.integers(0, vocabulary, n).astype(np.int32) for n in lengths]

    def rows(sequences: list[Any]) -> list[list[bytes]]:
        batch = RaggedBatch.from_sequences(sequences)
        forms = [
            engine.step(batch, (OutputSegment(0, len(sequences), spec),)).wait().rows[0]
            for spec in (OutputSpec(), OutputSpec(dimensions=8))
        ]
        return [[row.tobytes() for row in rows] for rows in zip(*forms, strict=True)]

    alone = [rows([sequence])[0] for sequence in pool]
    for _ in range(4):
        chosen = random.choice(len(pool), random.integers(1, 12))
        got = rows([pool[i] for i in chosen])
        assert got == [alone[i] for i in chosen], lengths_of(chosen, pool)
    assert engine.info.dtype == "float32 invariant"
    engine.close()


def test_the_fingerprint_names_the_mode(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(str(make_family(tmp_path / "m", "bert")))
    prints = set()
    for invariant in (False, True):
        engine = RoseEngine.load(checkpoint, device="cpu", invariant=invariant, num_threads=1)
        prints.add(engine.info.fingerprint)
        engine.close()
    assert len(prints) == 2


def test_attention_is_one_backend_in_one_tiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "missing", lambda folder, device: None)
    monkeypatch.setattr(Fa4Backend, "supports", lambda self, spec, device, dtype: None)
    prepared: list[Fa4Backend] = []
    monkeypatch.setattr(Fa4Backend, "prepare", lambda self, spec, device: prepared.append(self))
    spec = AttentionSpec(16, 8, 128, causal=False)
    for name in ("auto", "fa4"):
        settings = AttentionSettings(name, tmp_path)
        backend = select_backend(spec, "cuda", settings=settings, invariant=True)
        assert isinstance(backend, Fa4Backend)
        assert not backend.tells_shapes_apart
        assert {len(rules) for rules in backend._tiles.values()} == {1}


def test_a_model_whose_attention_adds_up_over_the_step_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = load_checkpoint(str(make_family(tmp_path / "m", "mpnet")))
    from hotbed.rose import engine

    monkeypatch.setattr(engine, "resolve_device", lambda name: torch.device("cuda"))
    with pytest.raises(HotbedError, match=r"invariant: on a GPU .* position bias"):
        RoseEngine.load(checkpoint, device="cuda", invariant=True)


def test_in_fp32_there_are_no_fused_gemms_and_never_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    FakeCuda(monkeypatch)
    from hotbed.rose.layers.linear import Linear

    x, w = torch.randn(5, 64), torch.randn(32, 64)
    with with_mode(Mode(invariant=True)):
        layers = [Linear(w), Linear(w, torch.randn(32), activation="gelu_tanh")]
    for name in ("linear",):
        monkeypatch.setattr(torch.nn.functional, name, _never)
    for name in ("addmm", "matmul", "_addmm_activation"):
        monkeypatch.setattr(torch, name, _never)
    monkeypatch.setattr(Tensor, "__matmul__", _never)
    monkeypatch.setattr(Tensor, "addmm_", _never)
    for layer in layers:
        assert layer(x).shape == (5, 32)
    assert layers[0](x, torch.zeros(5, 32)).shape == (5, 32)
    assert Compute(torch.float32, invariant=True).name == "float32 invariant"


def _never(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("a product whose tiling depends on the number of rows")
