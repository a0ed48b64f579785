"""SwiGLU of a fused gate and up projection, and the same with GELU."""

from __future__ import annotations

import pytest
import torch

from tests.rose.kernels.devices import Randoms, assert_close

kernel = pytest.importorskip("hotbed.rose.kernels.swiglu", reason="Triton is not installed")


# One block, its border, the models' widths: 3072 is 3 blocks, 9728 is 9 and a half.
@pytest.mark.parametrize("width", [8, 120, 1016, 1024, 1032, 3072, 9728])
@pytest.mark.parametrize("num_rows", [1, 5])
def test_matches_the_reference(randoms: Randoms, num_rows: int, width: int) -> None:
    x = randoms.normal(num_rows, 2 * width) * 3
    got = kernel.swiglu(x)
    assert got.shape == (num_rows, width)
    assert_close(got, kernel.reference(x))


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # numpy's, in the interpreter
def test_gelu_gates_match_the_reference(randoms: Randoms, activation: str) -> None:
    x = randoms.normal(3, 2 * 1032) * 3
    assert_close(kernel.swiglu(x, activation), kernel.reference(x, activation))


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_the_two_gelus_are_told_apart(randoms: Randoms) -> None:
    """They differ by up to 5e-4."""
    x = randoms.normal(2, 2 * 1024).float()
    exact, tanh = (kernel.swiglu(x, activation) for activation in ("gelu", "gelu_tanh"))
    assert (exact - tanh).abs().max() > 1e-4


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # numpy's, in the interpreter
def test_large_gates_do_not_overflow(randoms: Randoms, activation: str) -> None:
    x = randoms.normal(1, 32)
    x[0, :16] = torch.tensor([-1000.0, 1000.0], device=x.device).repeat(8)
    got = kernel.swiglu(x, activation)
    assert got.isfinite().all()
    assert_close(got, kernel.reference(x, activation))


def test_a_row_of_nan_stays_alone(randoms: Randoms) -> None:
    x = randoms.normal(3, 32)
    x[1] = float("nan")
    got = kernel.swiglu(x)
    assert got[1].isnan().all()
    assert got[[0, 2]].isfinite().all()


def test_what_it_would_misread_is_refused(randoms: Randoms) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        kernel.swiglu(randoms.normal(32, 4).T)
    with pytest.raises(ValueError, match="rows of 24"):
        kernel.swiglu(randoms.normal(2, 24))
    with pytest.raises(ValueError, match="'relu' is unknown"):
        kernel.swiglu(randoms.normal(2, 32), "relu")


def test_bytes_moved() -> None:
    assert kernel.bytes_moved(10, 100) == 10 * 100 * 3 * 2
