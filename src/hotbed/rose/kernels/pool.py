# mypy: ignore-errors
# ruff: noqa: PLR0917  (a kernel's pointers go by position)
"""Segment pooling: token states to one fp32 row a sequence, found by offsets on the device.

    mean: sum over the sequence / its length;  cls: first state;  last: last state
    default form: the row, divided by max(its L2 norm, 1e-12) where the model normalises

A mean takes two kernels. The first gives each program one piece of up to CHUNK tokens of one
sequence, so that a sequence of 8,192 tokens is spread as widely as a hundred of 512, and writes its
sum. Pieces are cut from the sequence's own start, so that its bits do not depend on where it lies;
those of slot s that starts at token t have places from t // CHUNK + s on, which is room enough for
all of them: ceil((u - t) / CHUNK) <= u // CHUNK - t // CHUNK + 1 up to the next slot's start u. The
second kernel adds them up, in order: no atomics, the same bits every time.

Bytes moved: mean T D elements and 8 (T / CHUNK + S) D of partial sums, cls and last S D elements;
and 4 S D of fp32 for each form that is written.
"""

from __future__ import annotations

import itertools
from typing import Literal

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from hotbed.rose.kernels.launch import check_matrix, check_row_width, check_vector, use_pdl

Pooling = Literal["mean", "cls", "last"]

CHUNK = 64
"""Tokens a piece: 8,192 tokens are 128 pieces by D / 128 programs, several a multiprocessor, and
128 partial rows for the program that adds them up."""
# With CHUNK rows 32 values a thread at 8 warps.
_CHUNK_COLUMNS = 128
_CHUNK_WARPS = 8
# Offsets looked at in one go when a token's slot is searched.
_SLOT_BLOCK = 1024
# Values of partial sums in flight in a program that adds them up: 64 a thread at 8 warps.
_FINISH_VALUES = 16_384
_FINISH_WARPS = 8
_NORM_EPS = 1e-12


def reference(
    x: Tensor, cu_seqlens: Tensor, *, pooling: Pooling, normalize: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """See `pool`."""
    bounds = cu_seqlens.tolist()
    rows = x.new_zeros(len(bounds) - 2, x.shape[1], dtype=torch.float32)
    for slot, (start, stop) in enumerate(itertools.pairwise(bounds[:-1])):
        if start < stop:
            states = x[start:stop].float()
            rows[slot] = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
    default = F.normalize(rows, dim=-1, eps=_NORM_EPS) if normalize else rows
    return rows, default, torch.isfinite(rows).all(dim=-1).to(torch.uint8)


@triton.jit(do_not_specialize=["num_slots"])
def _partial_sums_kernel(
    x_ptr,
    cu_seqlens_ptr,
    partial_ptr,
    num_slots,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    SLOT_BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    place = tl.program_id(1)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    in_row = cols < D
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    # The slot whose place this is: as many as begin here or before, less one. The pad slot is last.
    slot = -1
    first = 0
    while first < num_slots:
        index = first + tl.arange(0, SLOT_BLOCK)
        starts = tl.load(cu_seqlens_ptr + index, mask=index < num_slots, other=2147483647)
        begin = (starts // CHUNK + index <= place) & (index < num_slots)
        slot += tl.sum(begin.to(tl.int32), axis=0)
        first += SLOT_BLOCK
    if slot < num_slots - 1:
        start = tl.load(cu_seqlens_ptr + slot)
        stop = tl.load(cu_seqlens_ptr + slot + 1)
        start += (place - start // CHUNK - slot) * CHUNK
        rows = start + tl.arange(0, CHUNK)
        offsets = rows.to(tl.int64)[:, None] * D + cols[None, :]
        mask = (rows < stop)[:, None] & in_row[None, :]
        sums = tl.sum(tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32), axis=0)
        if start < stop:
            tl.store(partial_ptr + place.to(tl.int64) * D + cols, sums, mask=in_row)


@triton.jit
def _finish_kernel(
    x_ptr,
    partial_ptr,
    cu_seqlens_ptr,
    pooled_ptr,
    default_ptr,
    finite_ptr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    PIECES: tl.constexpr,
    POOLING: tl.constexpr,
    NORMALIZE: tl.constexpr,
    NORM_EPS: tl.constexpr,
    PDL: tl.constexpr,
):
    slot = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    in_row = cols < D
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    start = tl.load(cu_seqlens_ptr + slot)
    stop = tl.load(cu_seqlens_ptr + slot + 1)
    length = stop - start
    if POOLING == "mean":
        piece = start // CHUNK + slot
        last = piece + (length + CHUNK - 1) // CHUNK
        sums = tl.zeros([PIECES, BLOCK], tl.float32)
        while piece < last:
            index = piece + tl.arange(0, PIECES)
            mask = (index < last)[:, None] & in_row[None, :]
            offsets = index.to(tl.int64)[:, None] * D + cols[None, :]
            sums += tl.load(partial_ptr + offsets, mask=mask, other=0.0)
            piece += PIECES
        row = tl.sum(sums, axis=0) / tl.maximum(length, 1).to(tl.float32)
    else:
        token = start if POOLING == "cls" else stop - 1
        mask = in_row & (length > 0)
        row = tl.load(x_ptr + token.to(tl.int64) * D + cols, mask=mask, other=0.0).to(tl.float32)
    out = slot.to(tl.int64) * D + cols
    tl.store(pooled_ptr + out, row, mask=in_row)
    num_bad = tl.sum(tl.where(tl.abs(row) < float("inf"), 0, 1), axis=0)
    tl.store(finite_ptr + slot, (num_bad == 0).to(tl.uint8))
    if NORMALIZE:
        norm = tl.sqrt(tl.sum(row * row, axis=0))
        tl.store(default_ptr + out, row / tl.maximum(norm, NORM_EPS), mask=in_row)


def pool(
    x: Tensor,
    cu_seqlens: Tensor,
    *,
    pooling: Pooling,
    normalize: bool,
    out: tuple[Tensor, Tensor] | None = None,
    pdl: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Token states x [T, D] to rows, one for each slot but the last, which holds the pad rows.

    Args:
        x: contiguous; states of the pad slot are never read into a result.
        cu_seqlens: int32 [slots + 1], at least two slots.
        pooling: which.
        normalize: whether the default form is the normalised row.
        out: where the default form and the flags go, contiguous, in the shapes below; None makes
            them.
        pdl: None takes the device's default.

    Returns:
        pooled rows, fp32 [slots - 1, D], zeros for a slot without tokens;
        their default form, the same tensor unless `normalize`;
        uint8 [slots - 1], 1 where all of a pooled row is finite.
    """
    check_matrix("x", x)
    width = check_row_width(x)
    num_slots = len(cu_seqlens) - 1
    check_vector("cu_seqlens", cu_seqlens, num_slots + 1, torch.int32)
    if num_slots < 2:
        raise ValueError("cu_seqlens must have a slot for a sequence and one for the pad rows")
    if pooling not in ("mean", "cls", "last"):
        raise ValueError(f"pooling {pooling!r} is unknown")
    pdl = use_pdl(x, pdl)
    partial = x
    if pooling == "mean":
        num_places = triton.cdiv(len(x), CHUNK) + num_slots
        partial = x.new_empty(num_places, width, dtype=torch.float32)
        _partial_sums_kernel[(triton.cdiv(width, _CHUNK_COLUMNS), num_places)](
            x,
            cu_seqlens,
            partial,
            num_slots,
            D=width,
            CHUNK=CHUNK,
            BLOCK=_CHUNK_COLUMNS,
            SLOT_BLOCK=_SLOT_BLOCK,
            PDL=pdl,
            num_warps=_CHUNK_WARPS,
            launch_pdl=pdl,
        )
    if out is None:
        default_form = x.new_empty(num_slots - 1, width, dtype=torch.float32)
        finite = x.new_empty(num_slots - 1, dtype=torch.uint8)
    else:
        default_form, finite = out
        check_matrix("out[0]", default_form)
        check_vector("out[1]", finite, num_slots - 1, torch.uint8)
        if default_form.shape != (num_slots - 1, width) or default_form.dtype != torch.float32:
            raise ValueError(f"out[0] must be float32 [{num_slots - 1}, {width}]")
    pooled = torch.empty_like(default_form) if normalize else default_form
    block = triton.next_power_of_2(width)
    _finish_kernel[(num_slots - 1,)](
        x,
        partial,
        cu_seqlens,
        pooled,
        default_form,
        finite,
        D=width,
        CHUNK=CHUNK,
        BLOCK=block,
        PIECES=max(1, _FINISH_VALUES // block),
        POOLING=pooling,
        NORMALIZE=normalize,
        NORM_EPS=_NORM_EPS,
        PDL=pdl,
        num_warps=_FINISH_WARPS,
        launch_pdl=pdl,
    )
    return pooled, default_form, finite


def bytes_moved(
    num_rows: int,
    num_slots: int,
    width: int,
    *,
    pooling: Pooling,
    normalize: bool,
    itemsize: int = 2,
) -> int:
    """Bytes of device memory a call has to read and write; `num_slots` without the pad slot."""
    written = (2 if normalize else 1) * num_slots * width * 4
    if pooling != "mean":
        return num_slots * width * itemsize + written
    partial = 2 * (triton.cdiv(num_rows, CHUNK) + num_slots) * width * 4
    return num_rows * width * itemsize + partial + written
