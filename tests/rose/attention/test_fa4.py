"""Which kernel file is loaded, and how it is called, with a runtime that only records.

The kernels themselves are tested on a card (test_gpu).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from hotbed.core.errors import HotbedError
from hotbed.rose.attention import fa4, fa4_kernels
from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.attention.fa4_kernels import DEFAULT_TILE, Fa4Kernel, Mask
from hotbed.rose.attention.select import AttentionSettings, describe, select_backend
from tests.rose.attention.batches import device_batch, split_heads

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


@dataclass
class FakeRuntime:
    """Stands for tvm_ffi: every call of a kernel, by the name of its file."""

    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def load_module(self, path: str) -> dict[str, Callable[..., None]]:
        if Path(path).read_bytes() != b"":
            raise RuntimeError("not a library")
        return {"run": lambda *args: self.calls.append((Path(path).name, args))}


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    fake, module = FakeRuntime(), ModuleType("tvm_ffi")
    module.load_module = fake.load_module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tvm_ffi", module)
    return fake


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


def _folder(path: Path, *kernels: Fa4Kernel) -> Path:
    for kernel in kernels:
        (path / kernel.file_name).touch()
    (path / "fa4_sm100_bf16_hd64_g1_full.so").touch()
    (path / "stub.c").touch()
    return path


def _prepared(folder: Path, spec: AttentionSpec, runtime: FakeRuntime) -> fa4.Fa4Backend:
    backend = fa4.Fa4Backend(folder)
    backend.prepare(spec, CPU)
    runtime.calls.clear()
    return backend


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (Fa4Kernel(128, 2, "full"), "fa4_sm90_bf16_hd128_g2_full.so"),
        (Fa4Kernel(64, 1, "win", (128, 64)), "fa4_sm90_bf16_hd64_g1_win_t128x64.so"),
        (Fa4Kernel(32, 4, "causal", (64, 64)), "fa4_sm90_bf16_hd32_g4_causal_t64x64.so"),
    ],
)
def test_a_kernel_is_its_name(kernel: Fa4Kernel, name: str) -> None:
    assert kernel.file_name == name
    assert Fa4Kernel.parse(name) == kernel


@pytest.mark.parametrize(
    "name", ["stub.c", "fa4_sm100_bf16_hd64_g1_full.so", "fa4_sm90_bf16_hd64_g1_full_t64.so"]
)
def test_other_files_are_no_kernels(name: str) -> None:
    assert Fa4Kernel.parse(name) is None


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 64])
def test_the_kernel_of_head_dim_group_and_mask_is_called(
    tmp_path: Path, runtime: FakeRuntime, causal: bool, window: int | None
) -> None:
    masks: tuple[Mask, ...] = ("full", "causal", "win")
    every = [Fa4Kernel(d, g, m) for d in (32, 64, 128) for g in (1, 2, 4) for m in masks]
    folder = _folder(tmp_path, *every)
    for head_dim in (32, 64, 128):
        for group in (1, 2, 4):
            spec = AttentionSpec(2 * group, 2, head_dim, causal=causal, window=window)
            backend = _prepared(folder, spec, runtime)
            q, k, v = split_heads(torch.randn(10, 2 * group + 4, head_dim).bfloat16(), spec)
            backend.run(q, k, v, backend.plan(device_batch([3, 5], 10), spec))
            ((name, _),) = runtime.calls
            mask = "win" if window is not None else "causal" if causal else "full"
            assert name == f"fa4_sm90_bf16_hd{head_dim}_g{group}_{mask}.so"


@pytest.mark.parametrize(
    ("causal", "window", "sides"),
    [
        (False, None, (None, None)),
        (True, None, (None, None)),
        (False, 64, (64, 64)),
        (True, 64, (64, 0)),
    ],
)
def test_arguments_lie_in_the_kernels_order(
    tmp_path: Path,
    runtime: FakeRuntime,
    causal: bool,
    window: int | None,
    sides: tuple[int | None, int | None],
) -> None:
    spec = AttentionSpec(4, 2, 64, causal=causal, window=window)
    folder = _folder(tmp_path, Fa4Kernel(64, 2, fa4_kernels.mask_of(spec)))
    backend = _prepared(folder, spec, runtime)
    batch = device_batch([3, 5], 10)
    q, k, v = split_heads(torch.randn(10, 8, 64).bfloat16(), spec)
    out = backend.run(q, k, v, backend.plan(batch, spec))
    ((_, args),) = runtime.calls
    assert len(args) == 18
    offsets = batch.cu_seqlens
    assert [id(x) for x in args[:4]] == [id(x) for x in (q, k, v, out)]
    assert args[4] is None
    assert args[5] == 64**-0.5
    assert isinstance(args[5], float)
    assert args[6] is offsets
    assert args[7] is offsets
    assert args[8:] == (None, None, None, *sides, None, None, (None, None), None, None)
    assert out.is_contiguous()
    assert out.shape == q.shape
    assert out.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("lengths", "tile"),
    [
        ([5], (64, 64)),
        ([512], (64, 64)),
        ([512] * 2, DEFAULT_TILE),
        ([8192], DEFAULT_TILE),
        ([32] * 256, (64, 64)),
        ([33] * 256, DEFAULT_TILE),
    ],
)
def test_short_steps_and_short_texts_take_small_tiles(
    tmp_path: Path, runtime: FakeRuntime, lengths: list[int], tile: tuple[int, int]
) -> None:
    spec = AttentionSpec(16, 8, 128, causal=False)
    small, default = Fa4Kernel(128, 2, "full", (64, 64)), Fa4Kernel(128, 2, "full")
    backend = _prepared(_folder(tmp_path, small, default), spec, runtime)
    total = sum(lengths)
    plan = backend.plan(device_batch(lengths[:-1], total, num_slots=len(lengths)), spec)
    plan.kernel()
    assert runtime.calls[0][0] == Fa4Kernel(128, 2, "full", tile).file_name


@pytest.mark.parametrize("num_tokens", [64, 8192])
def test_with_one_tile_in_the_folder_it_is_taken(
    tmp_path: Path, runtime: FakeRuntime, num_tokens: int
) -> None:
    spec = AttentionSpec(16, 8, 128, causal=False)
    for tile in (DEFAULT_TILE, (64, 64)):
        only = Fa4Kernel(128, 2, "full", tile)
        folder = tmp_path / str(tile[0])
        folder.mkdir()
        backend = _prepared(_folder(folder, only), spec, runtime)
        backend.plan(device_batch([num_tokens], num_tokens), spec).kernel()
        assert runtime.calls[-1][0] == only.file_name


def test_every_kernel_of_a_model_runs_once_at_load(tmp_path: Path, runtime: FakeRuntime) -> None:
    """So that nothing is left to load under capture."""
    mine = [Fa4Kernel(64, 1, "full"), Fa4Kernel(64, 1, "full", (64, 64))]
    folder = _folder(tmp_path, *mine, Fa4Kernel(64, 1, "causal"), Fa4Kernel(128, 1, "full"))
    fa4.Fa4Backend(folder).prepare(AttentionSpec(2, 2, 64, causal=False), CPU)
    assert sorted(name for name, _ in runtime.calls) == sorted(k.file_name for k in mine)
    for _, args in runtime.calls:
        assert [tuple(x.shape) for x in args[:4]] == [(1, 2, 64)] * 4
        assert args[6].tolist() == [0, 1]


@pytest.mark.usefixtures("hopper")
def test_auto_takes_fa4_where_there_is_a_kernel_and_varlen_where_not(
    tmp_path: Path, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fa4.Fa4Backend, "prepare", lambda *_: None)
    settings = AttentionSettings(kernel_dir=_folder(tmp_path, Fa4Kernel(64, 1, "full")))
    for head_dim, group, causal, expected in (
        (64, 1, False, "fa4 by shape"),
        (64, 1, True, "varlen by shape"),
        (64, 2, False, "varlen by shape"),
        (128, 1, False, "varlen by shape"),
    ):
        spec = AttentionSpec(2 * group, 2, head_dim, causal=causal)
        assert select_backend(spec, "cuda", settings=settings).name == expected


@pytest.mark.usefixtures("hopper")
def test_a_missing_kernel_is_named(tmp_path: Path, runtime: FakeRuntime) -> None:
    settings = AttentionSettings("fa4", _folder(tmp_path, Fa4Kernel(64, 1, "full")))
    spec = AttentionSpec(4, 2, 64, causal=True)
    with pytest.raises(HotbedError, match=r"no kernel for .*fa4_sm90_bf16_hd64_g2_causal\.so"):
        select_backend(spec, "cuda", settings=settings)


@pytest.mark.usefixtures("runtime")
def test_another_card_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    backend = fa4.Fa4Backend(_folder(tmp_path, Fa4Kernel(64, 1, "full")))
    reason = backend.supports(AttentionSpec(2, 2, 64, causal=False), CUDA, torch.bfloat16)
    assert reason == "its kernels are for compute capability 9.0, not 8.0"


def test_without_the_runtime_it_says_which_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tvm_ffi", None)
    folder = _folder(tmp_path, Fa4Kernel(64, 1, "full"))
    backend = fa4.Fa4Backend(folder)
    reason = backend.supports(AttentionSpec(2, 2, 64, causal=False), CUDA, torch.bfloat16)
    assert reason == "the package apache-tvm-ffi is not installed"
    with pytest.raises(HotbedError, match="apache-tvm-ffi"):
        fa4_kernels.load(folder, Fa4Kernel(64, 1, "full"))


@pytest.mark.usefixtures("runtime")
def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    kernel = Fa4Kernel(64, 1, "full")
    (tmp_path / kernel.file_name).write_bytes(b"text")
    with pytest.raises(HotbedError, match=r"hd64_g1_full\.so cannot be loaded: not a library"):
        fa4_kernels.load(tmp_path, kernel)
    with pytest.raises(HotbedError, match="there is no FlashAttention 4 kernel"):
        fa4_kernels.load(tmp_path, Fa4Kernel(64, 2, "full"))


@pytest.mark.usefixtures("runtime", "hopper")
def test_the_table_lists_the_kernels_found(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        Fa4Kernel(64, 1, "win"),
        Fa4Kernel(64, 1, "win", (64, 64)),
        Fa4Kernel(32, 1, "full"),
    )
    row = describe(AttentionSettings(kernel_dir=folder))[-1]
    assert row.head_dims == "of the kernels found: hd32 g1 full, hd64 g1 win"
    assert row.missing is None
