"""Products and norms of rows whose bits are their own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.rose.kernels.devices import Randoms, assert_close

kernel = pytest.importorskip("hotbed.rose.kernels.fixed_gemm", reason="Triton is not installed")
from hotbed.rose.kernels.launch import row_launch  # noqa: E402  (it needs Triton)


@pytest.mark.parametrize(("columns", "depth"), [(8, 16), (96, 64), (200, 136), (1, 40), (130, 7)])
@pytest.mark.parametrize("num_rows", [1, 5, 130])
def test_matches_the_reference(randoms: Randoms, num_rows: int, columns: int, depth: int) -> None:
    x, w = randoms.normal(num_rows, depth), randoms.normal(columns, depth) / depth**0.5
    assert_close(kernel.fixed_gemm(x, w), kernel.reference(x, w))
    b = randoms.normal(columns)
    assert_close(kernel.fixed_gemm(x, w, b), kernel.reference(x, w, b))


def test_the_sum_replaces_what_is_added_to(randoms: Randoms) -> None:
    x, w, y = randoms.normal(33, 64), randoms.normal(72, 64) / 8, randoms.normal(33, 72)
    expected = kernel.reference(x, w, None, y)
    assert kernel.fixed_gemm(x, w, None, y) is y
    assert_close(y, expected)


def test_more_tiles_than_a_group(randoms: Randoms) -> None:
    """Ten rows of tiles, the last group of two: each tile is computed once."""
    tile = kernel._TILES[randoms.dtype][0]
    x, w = randoms.normal(10 * tile - 3, 16), randoms.normal(140, 16)
    assert_close(kernel.fixed_gemm(x, w) / 16, kernel.reference(x, w) / 16)


def test_a_rows_bits_do_not_depend_on_the_others(randoms: Randoms) -> None:
    x, w, b = randoms.normal(300, 72), randoms.normal(40, 72), randoms.normal(40)
    together = kernel.fixed_gemm(x, w, b)
    for start, stop in ((0, 1), (7, 8), (129, 300), (131, 140)):
        part = x[start:stop].clone()
        got = kernel.fixed_gemm(part, w, b)
        if got.is_cuda:
            assert torch.equal(got, together[start:stop])
        else:  # the interpreter's products are BLAS's, whose bits depend on a row's place in a tile
            assert_close(got, together[start:stop])


@pytest.mark.parametrize("width", [1, 7, 100, 1024])
def test_unit_rows(randoms: Randoms, width: int) -> None:
    x = randoms.normal(5, width, dtype=torch.float32)
    x[2] = 0
    got = kernel.unit_rows(x)
    assert_close(got, F.normalize(x, dim=-1))
    assert torch.equal(kernel.unit_rows(x[3:4].clone()), got[3:4])
    assert kernel.unit_rows(x[:0]).shape == (0, width)


def test_norms_of_fixed_launch_have_one_for_all_numbers_of_rows() -> None:
    for width in (384, 1024, 2560, 8192):
        launches = {row_launch(n, width, fixed=True) for n in (1, 100, 2112, 2113, 100_000)}
        assert launches == {row_launch(100_000, width)}


def test_what_it_would_misread_is_refused(randoms: Randoms) -> None:
    x, w = randoms.normal(4, 64), randoms.normal(8, 64)
    with pytest.raises(ValueError, match="x has rows of 64"):
        kernel.fixed_gemm(x, w[:, :32].contiguous())
    with pytest.raises(ValueError, match="contiguous"):
        kernel.fixed_gemm(x, w.T)
    with pytest.raises(ValueError, match="bias"):
        kernel.fixed_gemm(x, w, randoms.normal(4))
    with pytest.raises(ValueError, match="added"):
        kernel.fixed_gemm(x, w, None, randoms.normal(4, 4))
    with pytest.raises(ValueError, match="float32"):
        kernel.unit_rows(randoms.normal(2, 8, dtype=torch.bfloat16))


def test_bytes_moved() -> None:
    assert kernel.bytes_moved(10, 20, 30) == 2 * (10 * 50 + 600)
