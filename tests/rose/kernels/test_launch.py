"""Sizes of row kernels, and what is refused at load and at a call."""

from __future__ import annotations

import pytest
import torch

from hotbed.core.errors import ErrorCode, HotbedError
from tests.rose.kernels.devices import HAS_CARD, TOO_LATE

launch = pytest.importorskip("hotbed.rose.kernels.launch", reason="Triton is not installed")


@pytest.mark.parametrize("num_rows", [1, 64, 2112, 2113, 51_200])
@pytest.mark.parametrize("width", [8, 384, 1024, 1032, 2560, 4096, 8192])
def test_programs_cover_every_row_and_column_once(num_rows: int, width: int) -> None:
    size = launch.row_launch(num_rows, width)
    (programs,) = size.grid(num_rows)
    assert (programs - 1) * size.rows < num_rows <= programs * size.rows
    assert width <= size.block < 2 * width
    # What a thread holds of x: more than 64 fp32 values would spill beside the weights.
    assert size.rows * size.block <= 32 * size.num_warps * 64


def test_few_rows_get_a_program_each() -> None:
    assert launch.row_launch(2112, 1024).rows == 1
    assert launch.row_launch(2113, 1024).rows == 4


@pytest.mark.parametrize("width", [0, 4, 1001, 8200])
def test_a_width_no_kernel_takes_is_refused_at_load(width: int) -> None:
    with pytest.raises(HotbedError, match="on a GPU") as raised:
        launch.check_width("RMSNorm", width)
    assert raised.value.code is ErrorCode.INVALID_INPUT
    assert "RMSNorm" in raised.value.message


def test_pdl_is_off_where_there_is_none() -> None:
    assert not launch.use_pdl(torch.zeros(1), None)
    assert launch.use_pdl(torch.zeros(1), True)


def test_kernels_are_tested_one_way_or_the_other() -> None:
    assert HAS_CARD or not TOO_LATE, (
        "something imports Triton when tests are collected, before its interpreter is on: every "
        "kernel test is skipped. Import it later there, or set TRITON_INTERPRET=1 for the run"
    )
