"""The kernel's own source, on the CPU: see `tests/rose/kernels/hopper/emulator`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
from bench import small_attention as small
from bench.gemm import share_of_rounding
from bench.whole_steps import offsets_of
from hotbed.rose.kernels.hopper.wgmma import product
from hotbed.rose.kernels.short_attention import reference
from tests.rose.kernels.hopper.emulator.launcher import emulate, needs_compiler
from tests.rose.kernels.hopper.sources import (
    check_arguments,
    check_products_follow_each_other,
    needs_nvcc,
)


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, small)


@needs_compiler
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(
    ("lengths", "spare_slots"),
    [([31, 1], 3), ([127, 1], 0), ([129], 1), ([3] * 34, 0), ([300, 20], 0)],
    ids=str,
)
def test_every_row_is_the_formulas(
    lengths: list[int], spare_slots: int, head_dim: int, causal: bool
) -> None:
    torch.manual_seed(0)
    shape = {"num_heads": 2, "num_kv_heads": 1, "scale": head_dim**-0.5, "causal": causal}
    qkv = torch.randn(sum(lengths), 4 * head_dim).bfloat16()
    offsets = offsets_of(lengths + [0] * spare_slots, torch.device("cpu"))
    got = small.small_attention(qkv, offsets, **shape)
    assert share_of_rounding(got, reference(qkv, offsets, **shape), 4e-3) <= 1


@needs_compiler
def test_a_text_that_is_not_a_number_is_so_alone() -> None:
    """Its values lie in the boxes that a neighbour loads."""
    qkv = torch.randn(60, 3 * 64).bfloat16()
    qkv[20:40] = torch.nan
    offsets = offsets_of([20, 20, 20], torch.device("cpu"))
    got = small.small_attention(qkv, offsets, num_heads=1, num_kv_heads=1, scale=0.1)
    assert got[20:40].isnan().all()
    assert got[:20].isfinite().all()
    assert got[40:].isfinite().all()


def test_the_launcher_and_the_kernel_mean_the_same_arguments() -> None:
    check_arguments(small.Args, small.SOURCE.read_text())


@needs_nvcc
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("num_tokens", [32, 128, 256])
def test_the_compiler_lets_products_follow_each_other(
    head_dim: int, num_tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "product", product)
    kernel = small.Kernel.of(head_dim, num_tokens, causal=False)
    check_products_follow_each_other(kernel.prologue() + small.SOURCE.read_text(), tmp_path)
