"""RMSNorm, alone and with the residual addition."""

from __future__ import annotations

import pytest
import torch

from tests.rose.kernels.devices import Randoms, assert_close

kernel = pytest.importorskip("hotbed.rose.kernels.rms_norm", reason="Triton is not installed")

EPS = 1e-6
# Not a power of two, the models' widths, the widest.
WIDTHS = [8, 48, 1024, 2560, 8192]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("num_rows", [1, 5])
def test_matches_the_reference(randoms: Randoms, num_rows: int, width: int) -> None:
    x, w = randoms.normal(num_rows, width), randoms.normal(width)
    got = kernel.rms_norm(x, w, eps=EPS)
    assert got.dtype == x.dtype
    assert_close(got, kernel.reference(x, w, eps=EPS))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_sum_replaces_the_residual(randoms: Randoms, width: int) -> None:
    x, residual, w = randoms.normal(3, width), randoms.normal(3, width), randoms.normal(width)
    x_before, residual_before = x.clone(), residual.clone()
    got = kernel.add_rms_norm(x, residual, w, eps=EPS)
    assert_close(got, kernel.reference(x, w, eps=EPS, residual=residual_before))
    assert_close(residual, x.float() + residual_before.float())
    assert torch.equal(x, x_before)


@pytest.mark.parametrize("width", [8, 384, 1024, 2560])
def test_on_both_sides_of_the_border_between_launches(
    randoms: Randoms, border: int, width: int
) -> None:
    w = randoms.normal(width)
    for num_rows in (border, border + 1, 2 * border + 3):
        x = randoms.normal(num_rows, width)
        assert_close(kernel.rms_norm(x, w, eps=EPS), kernel.reference(x, w, eps=EPS))


def test_a_row_of_nan_stays_alone(randoms: Randoms, border: int) -> None:
    x, w = randoms.normal(border + 9, 8), randoms.normal(8)  # in one program
    expected = kernel.rms_norm(x, w, eps=EPS)
    x[7] = float("nan")
    got = kernel.rms_norm(x, w, eps=EPS)
    assert got[7].isnan().all()
    others = torch.arange(len(x), device=x.device) != 7
    assert torch.equal(got[others], expected[others])


def test_scaling_a_row_changes_nothing(randoms: Randoms) -> None:
    x, w = randoms.normal(3, 384), randoms.normal(384)
    assert torch.equal(kernel.rms_norm(x * 1024, w, eps=0.0), kernel.rms_norm(x, w, eps=0.0))


def test_squares_are_summed_in_fp32(randoms: Randoms) -> None:
    """A running bf16 sum of 8,192 squares would stop at 256."""
    x, w = torch.ones_like(randoms.normal(1, 8192)), torch.ones_like(randoms.normal(8192))
    assert_close(kernel.rms_norm(x, w, eps=0.0), torch.ones(1, 8192, device=x.device))


def test_a_zero_row_is_zero(randoms: Randoms) -> None:
    x = torch.zeros_like(randoms.normal(1, 64))
    assert kernel.rms_norm(x, randoms.normal(64), eps=EPS).eq(0).all()


def test_what_it_would_misread_is_refused(randoms: Randoms) -> None:
    x, w = randoms.normal(4, 64), randoms.normal(64)
    with pytest.raises(ValueError, match="contiguous"):
        kernel.rms_norm(x.T, w, eps=EPS)
    with pytest.raises(ValueError, match="contiguous"):
        kernel.rms_norm(x[:, :32], w[:32], eps=EPS)
    with pytest.raises(ValueError, match="contiguous"):
        kernel.rms_norm(x, w.repeat(2)[::2], eps=EPS)
    with pytest.raises(ValueError, match="weight"):
        kernel.rms_norm(x, w[:32], eps=EPS)
    with pytest.raises(ValueError, match="float16"):
        kernel.rms_norm(x.half(), w, eps=EPS)
    with pytest.raises(ValueError, match="rows of 60"):
        kernel.rms_norm(randoms.normal(4, 60), randoms.normal(60), eps=EPS)
    with pytest.raises(ValueError, match="residual"):
        kernel.add_rms_norm(x, x[:2].clone(), w, eps=EPS)


def test_bytes_moved() -> None:
    assert kernel.bytes_moved(10, 100) == 10 * 100 * 2 * 2
    assert kernel.bytes_moved(10, 100, itemsize=4, add=True) == 10 * 100 * 4 * 4
