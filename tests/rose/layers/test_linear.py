"""The packed linear layer against the plain formula in fp64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hotbed.rose.layers.linear import Activation, Linear, can_pack

# fp32 accumulation over K products of unit-scale numbers: eps * sqrt(K) with room for order.
TOLERANCE = 1e-5


def _reference(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, activation: Activation
) -> torch.Tensor:
    y = F.linear(x.double(), w.double(), None if b is None else b.double())
    return {
        "none": lambda v: v,
        "gelu": F.gelu,
        "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"),
        "relu": F.relu,
        "silu": F.silu,
    }[activation](y)


@pytest.mark.parametrize("rows", [1, 3, 16, 33], ids=lambda n: f"{n} rows")
@pytest.mark.parametrize("activation", ["none", "gelu", "gelu_tanh", "relu", "silu"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_matches_the_formula(rows: int, activation: Activation, bias: bool) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(rows, 48), torch.randn(40, 48) / 7
    b = torch.randn(40) if bias else None
    with torch.inference_mode():
        got = Linear(w, b, activation=activation)(x)
    torch.testing.assert_close(
        got.double(), _reference(x, w, b, activation), atol=TOLERANCE, rtol=TOLERANCE
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_residual_is_added_and_not_written_to(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(5, 48, dtype=dtype), torch.randn(40, 48, dtype=dtype) / 7
    residual = torch.randn(5, 40, dtype=dtype)
    before = residual.clone()
    with torch.inference_mode():
        got = Linear(w)(x, residual)
    expected = F.linear(x.float(), w.float()) + before.float()
    tolerance = TOLERANCE if dtype is torch.float32 else 0.05  # bf16: 2^-8 at magnitude 4
    torch.testing.assert_close(got.float(), expected, atol=tolerance, rtol=tolerance)
    assert torch.equal(residual, before)


def test_only_fp32_is_packed() -> None:
    assert can_pack(torch.zeros(2, 2)) == torch.backends.mkldnn.is_available()
    assert not can_pack(torch.zeros(2, 2, dtype=torch.bfloat16))
