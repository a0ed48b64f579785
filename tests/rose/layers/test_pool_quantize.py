"""Pooling, Matryoshka cut, normalising and quantising."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.rose.batch import LengthGroup, PackedBatch
from hotbed.rose.layers.pool import pool
from hotbed.rose.layers.quantize import finish

GROUPS = (LengthGroup(0, 1, 3), LengthGroup(3, 2, 2), LengthGroup(7, 1, 1))


def _pool(states: torch.Tensor, groups: tuple[LengthGroup, ...], pooling: Any) -> torch.Tensor:
    nothing = torch.zeros(0, dtype=torch.int32)
    batch = PackedBatch(nothing, nothing, 0, nothing, 0, groups, np.zeros(0, np.int64))
    return pool(states, batch, pooling)


def test_each_pooling_reads_only_its_own_sequence() -> None:
    states = torch.arange(10 * 4, dtype=torch.float32).view(10, 4)
    states[8:] = float("nan")  # pad rows
    bounds = [(0, 3), (3, 5), (5, 7), (7, 8)]
    expected = {
        "mean": torch.stack([states[a:b].mean(0) for a, b in bounds]),
        "cls": torch.stack([states[a] for a, _ in bounds]),
        "last": torch.stack([states[b - 1] for _, b in bounds]),
    }
    for name, rows in expected.items():
        torch.testing.assert_close(_pool(states, GROUPS, name), rows)


def test_mean_is_taken_in_fp32() -> None:
    # In bf16 a running sum of ones stops at 256.
    states = torch.ones(1000, 1, dtype=torch.bfloat16)
    rows = _pool(states, (LengthGroup(0, 1, 1000),), "mean")
    assert rows.dtype is torch.float32
    assert rows.item() == 1.0


def _finish(rows: torch.Tensor, spec: OutputSpec, **options: object) -> np.ndarray:
    settings = {"normalize": True, "quantizer": "none"} | options
    return finish(rows, spec, **settings).numpy()


def test_cut_comes_before_normalise_so_the_norm_is_one() -> None:
    rows = torch.tensor([[3.0, 4.0, 12.0, 84.0]])
    np.testing.assert_allclose(_finish(rows, OutputSpec(dimensions=2)), [[0.6, 0.8]], rtol=1e-6)


def test_the_request_overrides_the_models_normalisation() -> None:
    rows = torch.tensor([[3.0, 4.0]])
    assert _finish(rows, OutputSpec(normalize=False)).tolist() == [[3.0, 4.0]]
    np.testing.assert_allclose(
        _finish(rows, OutputSpec(normalize=True), normalize=False), [[0.6, 0.8]], rtol=1e-6
    )


def test_zero_row_stays_zero_and_finite() -> None:
    for dtype in OutputDtype:
        row = _finish(torch.zeros(1, 8), OutputSpec(dtype=dtype))
        assert np.isfinite(row.astype(np.float64)).all()
    assert _finish(torch.zeros(1, 8), OutputSpec()).tolist() == [[0.0] * 8]


def test_pplx_int8_is_the_published_formula() -> None:
    # tanh(p) * 127, half to even, on the unnormalised value; -0.001 is 0 in int8 and -1 in binary.
    rows = torch.tensor([[0.0, -0.001, 0.5, -0.5, 3.0, -30.0, 0.0039, 100.0]])
    codes = _finish(rows, OutputSpec(dtype=OutputDtype.INT8), normalize=False, quantizer="pplx")
    assert codes.dtype == np.int8
    assert codes.tolist() == [[0, 0, 59, -59, 126, -127, 0, 127]]
    bits = _finish(rows, OutputSpec(dtype=OutputDtype.UBINARY), normalize=False, quantizer="pplx")
    assert bits.tolist() == [[0b10101011]]


def test_int8_without_recipe_keeps_the_cosine_and_never_wraps() -> None:
    torch.manual_seed(0)
    rows = torch.randn(20, 384) * 5
    codes = _finish(rows, OutputSpec(dtype=OutputDtype.INT8)).astype(np.float64)
    assert np.abs(codes).max(axis=1).tolist() == [127.0] * 20
    exact = rows.double().numpy()
    cosine = (codes * exact).sum(1) / np.linalg.norm(codes, axis=1) / np.linalg.norm(exact, axis=1)
    assert cosine.min() > 0.9999


def test_bits_are_packed_along_the_row_most_significant_first() -> None:
    rows = torch.tensor([[1.0, -1, -1, -1, -1, -1, -1, 0.0], [-1.0] * 8])
    assert _finish(rows, OutputSpec(dtype=OutputDtype.UBINARY)).tolist() == [[0b10000001], [0]]
    assert _finish(rows, OutputSpec(dtype=OutputDtype.BINARY)).tolist() == [[1], [-128]]


@pytest.mark.parametrize("dtype", list(OutputDtype))
def test_rows_have_the_width_and_type_the_spec_states(dtype: OutputDtype) -> None:
    spec = OutputSpec(dimensions=16, dtype=dtype)
    rows = _finish(torch.randn(3, 32), spec)
    assert rows.shape == (3, spec.row_width(32))
    assert rows.dtype == dtype.numpy
    assert rows.flags.c_contiguous


def test_packing_is_numpys() -> None:
    torch.manual_seed(0)
    rows = torch.randn(9, 64)
    got = _finish(rows, OutputSpec(dtype=OutputDtype.UBINARY), normalize=False)
    np.testing.assert_array_equal(got, np.packbits(rows.numpy() >= 0, axis=-1))
