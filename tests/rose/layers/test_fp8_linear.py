"""Layers in FP8 on the GPU path: in the interpreter with torch's product on a CPU, or on a card."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.core.errors import HotbedError
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.sdpa import SdpaBackend
from hotbed.rose.batch import pack
from hotbed.rose.kernels import gemm
from hotbed.rose.kernels.fp8 import Fp8Rows, quantize_rows
from hotbed.rose.kernels.gemm import FusedGemms
from hotbed.rose.kernels.gemm_files import FP8_OPERANDS
from hotbed.rose.layers import fused
from hotbed.rose.layers.fp8_linear import wide
from hotbed.rose.layers.fused import Mode, with_mode
from hotbed.rose.layers.linear import Activation, Linear
from hotbed.rose.layers.mlp import Gate, GatedMlp
from hotbed.rose.layers.norm import LinearThenNorm, RMSNorm
from hotbed.rose.registry import FAMILIES
from tests.rose.kernels.devices import Randoms
from tests.rose.kernels.fake_gemms import FakeRuntime, fill
from tests.rose.layers.test_fused import BERT, QWEN3

EPS = 1e-6
K, N = 64, 96


@pytest.fixture
def bf16(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Randoms:
    """BF16 tensors that layers take to the kernels, whatever the device."""
    pytest.importorskip("triton", reason="Triton is not installed")
    monkeypatch.setattr(fused, "runs_on_kernels", lambda weight: True)
    return Randoms(device, torch.bfloat16)


@pytest.fixture(params=["torch", "folder"])
def mode(
    request: pytest.FixtureRequest,
    bf16: Randoms,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[FakeRuntime]:
    """Layers are built in FP8; with a folder of kernels or torch's product."""
    runtime = FakeRuntime()
    gemms = None
    if request.param == "folder":
        if bf16.device.type == "cuda":
            pytest.skip("a fake runtime computes on the CPU")
        monkeypatch.setitem(sys.modules, "tvm_ffi", runtime)
        folder = fill(tmp_path, FP8_OPERANDS)
        gemms = FusedGemms(folder, bf16.device, min_rows=gemm.ALL_ROWS, operands=FP8_OPERANDS)
    with with_mode(Mode(gemms, fp8=True)):
        yield runtime
    assert bool(runtime.calls) == (request.param == "folder")


def rounded(x: Tensor) -> Tensor:
    return quantize_rows(x).float()


def assert_close(got: Tensor, expected: Tensor) -> None:
    """BF16 results of at most 8; a value behind an activation is rounded twice."""
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), expected.float(), atol=2**-5, rtol=2**-6)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("activation", ["none", "gelu", "gelu_tanh", "relu"])
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_a_linear_layer(bf16: Randoms, activation: Activation, with_bias: bool) -> None:
    x, w = bf16.normal(5, K), bf16.normal(N, K) / 8
    b = bf16.normal(N) if with_bias else None
    layer = Linear(w, b, activation=activation)
    assert layer.weight.dtype == torch.float8_e4m3fn
    y = rounded(x) @ rounded(w).T + (0 if b is None else b.float())
    act = {
        "none": lambda y: y,
        "gelu": F.gelu,
        "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
        "relu": F.relu,
    }[activation]
    assert_close(layer(x), act(y))
    assert_close(layer(quantize_rows(x)), act(y))


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_the_residual_is_written_over(bf16: Randoms, with_bias: bool) -> None:
    x, w, residual = bf16.normal(5, K), bf16.normal(N, K) / 8, bf16.normal(5, N)
    b = bf16.normal(N) if with_bias else None
    expected = rounded(x) @ rounded(w).T + residual.float() + (0 if b is None else b.float())
    got = Linear(w, b)(x, residual)
    assert got.data_ptr() == residual.data_ptr()
    assert_close(got, expected)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("gate", ["silu", "gelu", "gelu_tanh"])
def test_a_gated_mlp(bf16: Randoms, gate: Gate) -> None:
    x, residual = bf16.normal(5, K), bf16.normal(5, K)
    gate_up, down = bf16.normal(2 * N, K) / 8, bf16.normal(K, N) / 8
    layer = GatedMlp(Linear(gate_up), Linear(down), gate)
    g, u = (rounded(x) @ rounded(gate_up).T).chunk(2, dim=1)
    act = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda g: F.gelu(g, approximate="tanh")}
    expected = rounded(act[gate](g) * u) @ rounded(down).T + residual.float()
    got = layer(x, residual.clone())
    # Rounded to BF16 before FP8 a value may fall to the next number of e4m3: 96 products, each off
    # by 1/8 of some 1/10 where that happens, seldom.
    torch.testing.assert_close(got.float(), expected, atol=0.15, rtol=0.05)


@pytest.mark.usefixtures("mode")
def test_norms_hand_over_fp8(bf16: Randoms) -> None:
    x, weight = bf16.normal(5, K), bf16.normal(K)
    norm = RMSNorm(weight, eps=EPS)
    assert isinstance(norm(x), Tensor), "a norm that is no linear layer's stays BF16"
    normed = norm.for_linear(x)
    assert isinstance(normed, Fp8Rows)
    torch.testing.assert_close(normed.float(), norm(x).float(), atol=0.02, rtol=0.08)
    w = bf16.normal(K, K) / 8
    then = LinearThenNorm(w, bf16.normal(K), norm_weight=weight, norm_bias=bf16.normal(K), eps=EPS)
    first = then(normed, x)
    assert isinstance(first, Fp8Rows)
    torch.testing.assert_close(first.float(), wide(first).float(), atol=0.02, rtol=0.08)
    again = then(first, first)
    assert torch.equal(wide(again), wide(then(first, wide(first)))), "the residual is BF16"


@pytest.mark.parametrize("shape", [(N, 72), (72, K)])
def test_a_shape_that_is_none_for_fp8_is_refused(bf16: Randoms, shape: tuple[int, int]) -> None:
    with with_mode(Mode(fp8=True)), pytest.raises(HotbedError, match="multiples of 16"):
        Linear(bf16.normal(*shape))


def _states(name: str, config: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    family, generator = FAMILIES[name], torch.Generator().manual_seed(1)
    weights = {
        name: (
            torch.randn(p.shape, generator=generator) / p.shape[-1] ** 0.5
            if len(p.shape) == 2
            else torch.ones(p.shape) + torch.randn(p.shape, generator=generator) / 10
        ).to(device, dtype)
        for name, p in family.weight_map(config).parameters.items()
    }
    model = family.build(config, weights, [SdpaBackend()])
    ids = np.arange(30, dtype=np.int32)
    batch = pack(RaggedBatch.from_lengths(ids, np.array([1, 9, 20], dtype=np.int32)))
    with torch.inference_mode():
        return model.forward(batch)[:30].float()


@pytest.mark.parametrize(("name", "config"), [("decoder", QWEN3), ("bert", BERT)])
def test_whole_models_stay_near_fp32(
    name: str, config: Any, bf16: Randoms, mode: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bf16.device.type == "cuda":
        pytest.skip("SDPA's batches lie on the CPU")
    got = _states(name, config, torch.bfloat16, bf16.device)
    plain: AbstractContextManager[None] = with_mode(Mode())
    monkeypatch.setattr(fused, "runs_on_kernels", lambda weight: False)
    with plain:
        expected = _states(name, config, torch.float32, bf16.device)
    # Single tokens of 64 values behind two layers; a scale in the wrong place gives below 0.9.
    assert F.cosine_similarity(got, expected).min() > 0.97
