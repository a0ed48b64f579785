"""FP8 with a scale for each row: alone, behind activations, and from the norms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hotbed.rose.kernels import fp8
from hotbed.rose.kernels.fp8 import Fp8Rows
from tests.rose.kernels.devices import Randoms, assert_close

kernel = pytest.importorskip("hotbed.rose.kernels.fp8_rows", reason="Triton is not installed")
from hotbed.rose.kernels import layer_norm, rms_norm  # noqa: E402  (they need Triton)

EPS = 1e-6
# Not a power of two, the models' widths, the widest.
WIDTHS = [16, 48, 384, 1024, 4096, 9728, 16_384]
GATES = ["silu", "gelu", "gelu_tanh"]


def assert_same(got: Fp8Rows, expected: Fp8Rows) -> None:
    """Equal but for values that lie at a border between two numbers of e4m3: sums in another order
    and approximate functions differ by 1e-5 of themselves, so some fall on the other side of it,
    one step of 1/8 at most. BF16 inputs of 8 bits lie on a border quite often.
    """
    torch.testing.assert_close(got.scales, expected.scales, rtol=1e-5, atol=0)
    a, b = got.values.float(), expected.values.float()
    torch.testing.assert_close(a, b, rtol=0.13, atol=2**-8)
    assert (a != b).float().mean() < 0.05


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("num_rows", [1, 5])
def test_matches_the_reference(randoms: Randoms, num_rows: int, width: int) -> None:
    x = randoms.normal(num_rows, width)
    assert_same(kernel.fp8_rows(x), kernel.reference(x))


def test_every_value_is_rounded_to_the_nearest_number(randoms: Randoms) -> None:
    """Where rounding up reaches the next power of two, too, and below the normal numbers."""
    numbers = torch.arange(127, dtype=torch.uint8).view(fp8.DTYPE).float()
    between = (numbers[1:] + numbers[:-1]) / 2
    x = torch.cat([numbers, between * (1 - 1e-6), between * (1 + 1e-6), torch.zeros(5)])
    x = torch.cat([x, -x])[None].to(randoms.device)
    got = kernel.fp8_rows(x)
    assert got.scales.tolist() == [1.0]
    distance = (x.cpu().T - torch.cat([numbers, -numbers])[None]).abs().amin(dim=1)
    assert torch.equal((got.values.float() - x).abs().cpu()[0], distance)


@pytest.mark.parametrize("form", GATES)
@pytest.mark.parametrize("width", [16, 3072, 9728])
def test_behind_a_gate(randoms: Randoms, form: str, width: int) -> None:
    x = randoms.normal(3, 2 * width)
    assert_same(kernel.fp8_rows(x, form), kernel.reference(x, form))


@pytest.mark.parametrize("with_bias", [True, False])
def test_behind_gelu(randoms: Randoms, with_bias: bool) -> None:
    x, bias = randoms.normal(3, 1536), randoms.normal(1536) if with_bias else None
    assert_same(kernel.fp8_rows(x, "bias_gelu", bias), kernel.reference(x, "bias_gelu", bias))


@pytest.mark.parametrize("width", [48, 1024, 2560])
def test_from_rms_norm(randoms: Randoms, border: int, width: int) -> None:
    for num_rows in (border, 2 * border + 3):
        x, w = randoms.normal(num_rows, width), randoms.normal(width)
        got = rms_norm.rms_norm_fp8(x, w, eps=EPS)
        assert_same(got, fp8.quantize_rows(rms_norm.reference(x, w, eps=EPS)))
        assert got.wide is None


@pytest.mark.parametrize("width", [48, 384, 1024])
def test_from_layer_norm_comes_the_residual_too(randoms: Randoms, width: int) -> None:
    x, residual = randoms.normal(5, width), randoms.normal(5, width)
    w, b, linear_bias = (randoms.normal(width) for _ in range(3))
    extra = {"linear_bias": linear_bias, "residual": residual}
    expected = layer_norm.reference(x, w, b, eps=EPS, **extra)
    got = layer_norm.layer_norm_fp8(x, w, b, eps=EPS, **extra)
    assert_same(got, fp8.quantize_rows(expected))
    assert got.wide is not None
    assert_close(got.wide, expected)


def test_a_row_has_a_scale_of_its_own(randoms: Randoms) -> None:
    x = randoms.normal(4, 64)
    x[1] *= 2**20
    x[2] = 0
    got = kernel.fp8_rows(x)
    alone = [kernel.fp8_rows(row[None]) for row in x]
    assert torch.equal(
        got.values.view(torch.uint8), torch.cat([a.values for a in alone]).view(torch.uint8)
    )
    assert got.float()[2].eq(0).all()
    assert got.float().isfinite().all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_stays_so_and_alone(randoms: Randoms, bad: float) -> None:
    x = randoms.normal(3, 64)
    x[1, 5] = bad
    with np.errstate(invalid="ignore"):  # of the interpreter, at infinity times 0
        got = kernel.fp8_rows(x)
    assert not got.float()[1].isfinite().all()
    assert got.float()[[0, 2]].isfinite().all()
    assert not fp8.quantize_rows(x).float()[1].isfinite().all()


def test_what_it_would_misread_is_refused(randoms: Randoms) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        kernel.fp8_rows(randoms.normal(64, 4).T)
    with pytest.raises(ValueError, match="rows of 12"):
        kernel.fp8_rows(randoms.normal(2, 24), "silu")
    with pytest.raises(ValueError, match="unknown"):
        kernel.fp8_rows(randoms.normal(2, 32), "relu")
    with pytest.raises(ValueError, match="takes no bias"):
        kernel.fp8_rows(randoms.normal(2, 32), "silu", randoms.normal(16))


def test_bytes_moved() -> None:
    assert kernel.bytes_moved(10, 100) == 10 * (100 * 3 + 4)
    assert kernel.bytes_moved(10, 100, gated=True) == 10 * (100 * 5 + 4)
