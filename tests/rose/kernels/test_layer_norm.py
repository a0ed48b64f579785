"""LayerNorm, with and without the bias and residual that end a post-norm block."""

from __future__ import annotations

import pytest
import torch

from tests.rose.kernels.devices import Randoms, assert_close

kernel = pytest.importorskip("hotbed.rose.kernels.layer_norm", reason="Triton is not installed")

EPS = 1e-12
# Not a power of two (TinyBERT's), one, and the least; 384 and 768 are below.
WIDTHS = [8, 312, 1024]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("with_residual", [False, True], ids=["", "residual"])
def test_matches_the_reference(
    randoms: Randoms, num_rows: int, width: int, with_bias: bool, with_residual: bool
) -> None:
    x, w, b = randoms.normal(num_rows, width), randoms.normal(width), randoms.normal(width)
    options = {
        "linear_bias": randoms.normal(width) if with_bias else None,
        "residual": randoms.normal(num_rows, width) if with_residual else None,
    }
    before = x.clone()
    got = kernel.layer_norm(x, w, b, eps=EPS, **options)
    assert_close(got, kernel.reference(x, w, b, eps=EPS, **options))
    assert torch.equal(x, before)


@pytest.mark.parametrize("width", [24, 384, 768])
def test_on_both_sides_of_the_border_between_launches(
    randoms: Randoms, border: int, width: int
) -> None:
    w = randoms.normal(width)
    for num_rows in (border, border + 1, 2 * border + 3):
        x, r = randoms.normal(num_rows, width), randoms.normal(num_rows, width)
        got = kernel.layer_norm(x, w, w, eps=EPS, linear_bias=w, residual=r)
        assert_close(got, kernel.reference(x, w, w, eps=EPS, linear_bias=w, residual=r))


def test_rows_far_from_zero_keep_their_variance(randoms: Randoms) -> None:
    """mean(x^2) - mean(x)^2 in fp32 would lose it: 1e6 against 1.

    The mean itself is 1001 to half a unit in the last of 24 bits.
    """
    x = torch.arange(48, device=randoms.device).remainder(2).float().mul(2).add(1000)[None]
    one, zero = torch.ones(48, device=x.device), torch.zeros(48, device=x.device)
    got = kernel.layer_norm(x, one, zero, eps=0.0)
    torch.testing.assert_close(got, x - 1001, atol=1001 * 2**-24, rtol=1e-6)


def test_a_row_of_nan_stays_alone(randoms: Randoms, border: int) -> None:
    x, w = randoms.normal(border + 9, 24), randoms.normal(24)  # in one program
    expected = kernel.layer_norm(x, w, w, eps=EPS)
    x[7] = float("nan")
    got = kernel.layer_norm(x, w, w, eps=EPS)
    assert got[7].isnan().all()
    others = torch.arange(len(x), device=x.device) != 7
    assert torch.equal(got[others], expected[others])


def test_what_it_would_misread_is_refused(randoms: Randoms) -> None:
    x, w = randoms.normal(4, 64), randoms.normal(64)
    with pytest.raises(ValueError, match="contiguous"):
        kernel.layer_norm(x[:, ::2], w[:32], w[:32], eps=EPS)
    with pytest.raises(ValueError, match="bias"):
        kernel.layer_norm(x, w, w[:8], eps=EPS)
    with pytest.raises(ValueError, match="linear_bias"):
        kernel.layer_norm(x, w, w, eps=EPS, linear_bias=w[:8])
    with pytest.raises(ValueError, match="residual"):
        kernel.layer_norm(x, w, w, eps=EPS, residual=x.T)


def test_bytes_moved() -> None:
    assert kernel.bytes_moved(10, 100) == 10 * 100 * 2 * 2
    assert kernel.bytes_moved(10, 100, residual=True) == 10 * 100 * 2 * 3
