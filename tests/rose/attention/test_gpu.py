"""Every backend on a card, in bfloat16, against plain attention in fp64; eager and in CUDA graphs.

FlashAttention 4 is tested with the kernels in the folder that HOTBED_KERNEL_DIR names
(`python -m hotbed.rose.build_kernels` makes them).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.attention.fa4 import Fa4Backend, TileRule
from hotbed.rose.attention.fa4_kernels import DEFAULT_TILE, mask_of
from hotbed.rose.attention.reference import worst_error
from hotbed.rose.attention.sdpa import SdpaBackend
from hotbed.rose.attention.varlen import VarlenBackend
from hotbed.rose.batch import LengthGroup, PackedBatch
from tests.rose.attention.batches import device_batch, offsets_of, split_heads

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda")
RAGGED = ["varlen", "fa4", "fa4 64x64", "fa4 128x64"]
MIXED = [37, 121, 64, 200, 1, 18, 90, 256]
# Alone; around the edges of tiles; mixed; more sequences than a block scans at once.
LENGTHS = [[1], [2], [63], [64], [65], [512], [1000], MIXED, [1] * 300]
KV_HEADS = 2


@pytest.fixture(autouse=True)
def _as_in_the_engine() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


def _specs(*, window: bool = True) -> list[AttentionSpec]:
    masks = [(False, None), (True, None)] + [(False, 64), (True, 64)] * window
    return [
        AttentionSpec(KV_HEADS * group, KV_HEADS, head_dim, causal=causal, window=window)
        for head_dim in (32, 64, 128)
        for group in (1, 2, 4)
        for causal, window in masks
    ]


def _name(spec: AttentionSpec) -> str:
    mask = ("causal" if spec.causal else "full") + (" window" if spec.window is not None else "")
    return f"hd{spec.head_dim} g{spec.group} {mask}"


def _backend(name: str, spec: AttentionSpec) -> AttentionBackend:
    """Ready to run, or the test is skipped with the reason."""
    if name == "varlen":
        backend: AttentionBackend = VarlenBackend()
    else:
        if (folder := os.environ.get("HOTBED_KERNEL_DIR")) is None:
            pytest.skip("HOTBED_KERNEL_DIR names no folder of FlashAttention 4 kernels")
        tile = (64, 64) if "64x64" in name else (128, 64) if "128x64" in name else DEFAULT_TILE
        mask = mask_of(spec)
        backend = Fa4Backend(Path(folder), tiles={mask: (TileRule(tile, torch.inf),)})
    if (reason := backend.supports(spec, DEVICE, torch.bfloat16)) is not None:
        pytest.skip(reason)
    backend.prepare(spec, DEVICE)
    if isinstance(backend, Fa4Backend) and tile not in backend._kernels[spec]:
        pytest.skip(f"there is no kernel with tile {tile} for {_name(spec)}")
    return backend


class Case(NamedTuple):
    """A batch with its q, k and v, in one buffer of the projection's form."""

    batch: PackedBatch
    heads: torch.Tensor
    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    offsets: list[int]


def _case(lengths: list[int], total: int, spec: AttentionSpec, num_slots: int = 16) -> Case:
    """Queries are large, so that weights are uneven and one key more or less shows."""
    num_slots = max(num_slots, len(lengths) + 1)
    batch = device_batch(lengths, total, num_slots=num_slots, device=DEVICE)
    shape = (total, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
    heads = torch.randn(shape, device=DEVICE)
    heads[:, : spec.num_heads] *= 3
    heads = heads.bfloat16()
    return Case(batch, heads, split_heads(heads, spec), offsets_of(lengths, total, num_slots))


def _run(backend: AttentionBackend, case: Case, spec: AttentionSpec) -> torch.Tensor:
    return backend.run(*case.qkv, backend.plan(case.batch, spec))


@pytest.mark.parametrize("spec", _specs(), ids=_name)
@pytest.mark.parametrize("name", RAGGED)
def test_backend_matches_fp64_and_writes_every_row(name: str, spec: AttentionSpec) -> None:
    backend = _backend(name, spec)
    for lengths in LENGTHS:
        num_tokens = sum(lengths)
        # The pad slot is a sequence like the others: all rows are compared.
        for total in (num_tokens, num_tokens + 39) if lengths is MIXED else (num_tokens + 39,):
            case = _case(lengths, total, spec)
            got = _run(backend, case, spec)
            assert got.is_contiguous()
            worst = worst_error(got, case.qkv, case.offsets, spec)
            assert worst <= 1, (lengths, total, worst)


@pytest.mark.parametrize("name", RAGGED)
def test_a_long_text_matches_fp64(name: str) -> None:
    spec = AttentionSpec(2, 2, 64, causal=False)
    backend = _backend(name, spec)
    case = _case([8192], 8192 + 256, spec)
    assert worst_error(_run(backend, case, spec), case.qkv, case.offsets, spec) <= 1


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 1, 63, 64, 65, None])
@pytest.mark.parametrize("name", RAGGED)
def test_a_token_sees_as_far_as_the_window_and_not_one_further(
    name: str, window: int | None, causal: bool
) -> None:
    """Nothing but distances: scores are all 0, and v says which key of its sequence it is."""
    spec = AttentionSpec(2, 2, 128, causal=causal, window=window)
    backend = _backend(name, spec)
    lengths = [128, 100, 65, 64, 1]
    case = _case(lengths, sum(lengths) + 26, spec)
    case.heads.zero_()
    _, _, v = case.qkv
    for start, length in zip(case.offsets, [*lengths, 26], strict=False):
        v[start : start + length, :, :length] = torch.eye(length, device=DEVICE)[:, None]
    got = _run(backend, case, spec)
    for start, length in zip(case.offsets, lengths, strict=False):
        position = torch.arange(length, device=DEVICE)
        distance = position[None, :] - position[:, None]
        visible = torch.ones_like(distance, dtype=torch.bool)
        if causal:
            visible &= distance <= 0
        if window is not None:
            visible &= distance.abs() <= window
        for head in range(2):
            seen = got[start : start + length, head]
            assert torch.equal(seen[:, :length] > 0, visible)
            assert not seen[:, length:].any(), "keys of other sequences"


@pytest.mark.parametrize("spec", _specs(), ids=_name)
@pytest.mark.parametrize("name", RAGGED)
def test_a_graph_is_right_for_other_lengths_than_it_was_captured_with(
    name: str, spec: AttentionSpec
) -> None:
    backend = _backend(name, spec)
    assert backend.supports_capture
    case = _case(MIXED, 1024, spec)
    if name == "varlen":
        _run(backend, case, spec)
    # FlashAttention 4 has not run here since `prepare`: nothing may be left to load.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = _run(backend, case, spec)
    for lengths in ([300, 5, 411, 64], [1] * 15, [1024], [512, 512], [63, 64, 65, 1], MIXED):
        offsets = offsets_of(lengths, 1024, 16)
        case.batch.cu_seqlens.copy_(torch.tensor(offsets, dtype=torch.int32))
        case.heads[:, spec.num_heads :].normal_()
        out.fill_(float("nan"))
        graph.replay()
        worst = worst_error(out, case.qkv, offsets, spec)
        assert worst <= 1, (lengths, worst)


@pytest.mark.parametrize("value", ["large", "nan"])
@pytest.mark.parametrize("spec", _specs(), ids=_name)
@pytest.mark.parametrize("name", RAGGED)
def test_what_lies_in_other_slots_never_reaches_a_sequence(
    name: str, spec: AttentionSpec, value: str
) -> None:
    """Bit for bit, with large values in all other rows; with NaN where the backend promises it."""
    backend = _backend(name, spec)
    if value == "nan" and not backend.isolates_nan:
        pytest.skip(f"{backend.name} asks for finite rows")
    lengths = [1, 65, 100, 63, 128]
    case = _case(lengths, 512, spec)
    before = _run(backend, case, spec)
    for i in range(len(lengths)):
        mine = slice(case.offsets[i], case.offsets[i + 1])
        others = case.heads * 1e4 if value == "large" else torch.full_like(case.heads, torch.nan)
        others[mine] = case.heads[mine]
        poisoned = case._replace(qkv=split_heads(others, spec))
        after = _run(backend, poisoned, spec)
        assert torch.equal(after[mine], before[mine])
        if value == "large":
            assert torch.isfinite(after).all()


@pytest.mark.parametrize("spec", _specs(window=False), ids=_name)
@pytest.mark.parametrize("num_pad_rows", [0, 40])
def test_sdpa_is_fused_right_and_captured_for_one_layout(
    spec: AttentionSpec, num_pad_rows: int
) -> None:
    backend = SdpaBackend()
    for lengths, groups in (
        ([128] * 4, (LengthGroup(0, 4, 128),)),
        ([130, 7, 7, 1], (LengthGroup(0, 1, 130), LengthGroup(130, 2, 7), LengthGroup(144, 1, 1))),
    ):
        total = sum(lengths)
        case = _case(lengths, total + num_pad_rows, spec)
        case.heads[total:] = torch.nan
        batch = device_batch(lengths, total + num_pad_rows, device=DEVICE, groups=groups)
        plan = backend.plan(batch, spec)
        out = backend.run(*case.qkv, plan)
        offsets = [*offsets_of(lengths, total, 16)]
        assert worst_error(out, case.qkv, offsets, spec) <= 1
        assert torch.isfinite(out).all()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = backend.run(*case.qkv, plan)
        case.heads[:total].normal_()
        graph.replay()
        assert worst_error(captured, case.qkv, offsets, spec) <= 1
        assert torch.isfinite(captured).all()
