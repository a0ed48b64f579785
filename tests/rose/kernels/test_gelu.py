"""Bias and exact GELU in place."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.rose.kernels.devices import Randoms, assert_close

kernel = pytest.importorskip("hotbed.rose.kernels.gelu", reason="Triton is not installed")


@pytest.mark.parametrize("width", [8, 1536, 2040, 2048, 2056])
@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_matches_the_reference(
    randoms: Randoms, num_rows: int, width: int, with_bias: bool
) -> None:
    whole = randoms.normal(num_rows + 2, width) * 2
    before = whole.clone()
    x = whole[1:-1]
    bias = randoms.normal(width) if with_bias else None
    got = kernel.bias_gelu_(x, bias)
    assert got.data_ptr() == x.data_ptr()
    assert_close(got, kernel.reference(before[1:-1], bias))
    assert torch.equal(whole[[0, -1]], before[[0, -1]]), "rows around it"


def test_it_is_the_exact_form_and_not_tanhs(randoms: Randoms) -> None:
    x = torch.linspace(-4, 4, 64, device=randoms.device)[None]
    tanh = F.gelu(x, approximate="tanh")
    exact = F.gelu(x)
    assert (tanh - exact).abs().max() > 2e-4
    assert_close(kernel.bias_gelu_(x.clone(), None), exact)


def test_what_it_would_misread_is_refused(randoms: Randoms) -> None:
    x = randoms.normal(4, 64)
    with pytest.raises(ValueError, match="contiguous"):
        kernel.bias_gelu_(x[:, :32], None)
    with pytest.raises(ValueError, match="bias"):
        kernel.bias_gelu_(x, randoms.normal(32))
    with pytest.raises(ValueError, match="rows of 60"):
        kernel.bias_gelu_(randoms.normal(4, 60), None)


def test_bytes_moved() -> None:
    assert kernel.bytes_moved(10, 100) == 10 * 100 * 2 * 2
