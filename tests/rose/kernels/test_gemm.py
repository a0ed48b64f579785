"""GEMMs with a fused epilogue: which file is taken and how it is called.

Without a card, a runtime stands for the kernels that computes what their file's name says from the
arguments in their places. On a card, the kernels in the folder that HOTBED_KERNEL_DIR names.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import get_args

import pytest
import torch

from hotbed.core.errors import HotbedError
from hotbed.rose.kernels import files, gemm
from hotbed.rose.kernels.fp8 import gate_and_up, quantize_rows
from hotbed.rose.kernels.gemm import FusedGemms
from hotbed.rose.kernels.gemm_files import (
    Epilogue,
    GemmKernel,
    GemmTile,
    Operands,
    kernels_in,
)
from hotbed.rose.layers import fused
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.mlp import Gate, GatedMlp, Mlp
from tests.rose.kernels.fake_gemms import FakeRuntime, fill

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
OTHER = GemmTile(256, 128, False)
EPILOGUES: tuple[Epilogue, ...] = ("swiglu", "gelu_bias", "gelu_tanh_bias")


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    fake = FakeRuntime()
    monkeypatch.setitem(sys.modules, "tvm_ffi", fake)
    return fake


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for epilogue in EPILOGUES:
        (tmp_path / GemmKernel(epilogue).file_name).touch()
        (tmp_path / GemmKernel(epilogue, OTHER).file_name).touch()
    (tmp_path / "gemm_sm100_bf16_swiglu_t128x192p.so").touch()
    (tmp_path / "stub.c").touch()
    return tmp_path


def _inputs(
    epilogue: Epilogue, num_rows: int, device: torch.device = CPU, n: int = 96, k: int = 64
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    torch.manual_seed(0)
    x = torch.randn(num_rows, k, device=device).bfloat16()
    weight = (torch.randn(n, k, device=device) / k**0.5).bfloat16()
    bias = None if epilogue == "swiglu" else torch.randn(n, device=device).bfloat16()
    return x, weight, bias


# FP8's tensor cores keep about 13 bits behind the point of a sum's largest term at each of K / 32
# steps, of 4 of them before a sum in fp32.
SUMS_OFF_BY: dict[Operands, float] = {"bf16": 2e-3, "fp8": 1.6e-2, "fp8fast": 6.4e-2}


def _assert_close(got: torch.Tensor, expected: torch.Tensor, atol: float = 2e-3) -> None:
    # Rounded once to 8 bits; fp32 sums in another order stay far below.
    torch.testing.assert_close(got.float(), expected.float(), atol=atol, rtol=2**-8)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (GemmKernel("swiglu"), "gemm_sm90_bf16_swiglu_t128x128p.so"),
        (GemmKernel("gelu_tanh_bias", OTHER), "gemm_sm90_bf16_gelu_tanh_bias_t256x128c.so"),
    ],
)
def test_a_kernel_is_its_name(kernel: GemmKernel, name: str) -> None:
    assert kernel.file_name == name
    assert GemmKernel.parse(name) == kernel


@pytest.mark.parametrize(
    "name", ["stub.c", "gemm_sm90_bf16_relu_t128x192p.so", "gemm_sm100_bf16_swiglu_t128x192p.so"]
)
def test_other_files_are_no_kernels(name: str) -> None:
    assert GemmKernel.parse(name) is None


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("num_rows", [1, 7, 300])
def test_arguments_lie_in_the_kernels_order(
    epilogue: Epilogue, num_rows: int, folder: Path, runtime: FakeRuntime
) -> None:
    kernel = FusedGemms(folder, CPU).get(epilogue)
    assert kernel is not None
    assert runtime.calls == [(GemmKernel(epilogue), 1)], "it has run once, at load"
    x, weight, bias = _inputs(epilogue, num_rows)
    got = kernel(x, weight, bias)
    _assert_close(got, gemm.reference(epilogue, x, weight, bias))
    assert got.is_contiguous()


@pytest.mark.parametrize("operands", ["bf16", "fp8", "fp8fast"])
@pytest.mark.parametrize("epilogue", get_args(Epilogue))
def test_every_epilogue_takes_its_arguments(
    operands: Operands, epilogue: Epilogue, tmp_path: Path, runtime: FakeRuntime
) -> None:
    gemms = FusedGemms(fill(tmp_path, operands), CPU, min_rows=gemm.ALL_ROWS, operands=operands)
    kernel = gemms.get(epilogue)
    assert kernel is not None
    assert kernel.takes(torch.zeros(1, 64))
    x, weight, bias = _inputs(epilogue, 5)
    bias = bias if epilogue.endswith("bias") else None
    added = torch.randn(5, 96).bfloat16() if epilogue == "add" else None
    a: gemm.Matrix = quantize_rows(x) if operands != "bf16" else x
    b: gemm.Matrix = weight
    if operands != "bf16":
        b = gate_and_up(quantize_rows(weight)) if epilogue == "swiglu" else quantize_rows(weight)
    expected = gemm.reference(epilogue, a, b, bias, added)
    got = kernel(a, b, bias, added)
    _assert_close(got, expected)
    assert (got is added) == (epilogue == "add")
    assert {kernel.operands for kernel, _ in runtime.calls} == {operands}
    other: gemm.Matrix = x if operands != "bf16" else quantize_rows(x)
    with pytest.raises(ValueError, match=f"takes operands of {operands}"):
        kernel(other, b, bias, added)


def test_a_kernel_is_loaded_once_and_the_others_not_at_all(
    folder: Path, runtime: FakeRuntime
) -> None:
    gemms = FusedGemms(folder, CPU)
    assert gemms.get("swiglu") is gemms.get("swiglu")
    assert [kernel.epilogue for kernel, _ in runtime.calls] == ["swiglu"]
    (folder / GemmKernel("gelu_bias").file_name).unlink()
    assert gemms.get("gelu_bias") is None, "a tile for the bench is not taken"


@pytest.mark.usefixtures("runtime")
def test_what_it_would_misread_is_refused(folder: Path) -> None:
    gemms = FusedGemms(folder, CPU)
    swiglu, gelu = gemms.get("swiglu"), gemms.get("gelu_bias")
    assert swiglu is not None
    assert gelu is not None
    x, weight, _ = _inputs("swiglu", 4)
    for args, message in (
        ((x.float(), weight), "x must be contiguous bfloat16"),
        ((x[:, :32], weight), r"x must be .* \[4, 64\]"),
        ((x, weight.T.contiguous().T), "weight must be"),
        ((x, weight[:90].contiguous()), "multiples of 8"),
        ((x.flatten()[1:].new_empty(4 * 64 + 1)[1:].view(4, 64), weight), "16 bytes"),
        ((x, weight, torch.zeros(96).bfloat16()), "swiglu takes no bias"),
    ):
        with pytest.raises(ValueError, match=message):
            swiglu(*args)
    with pytest.raises(ValueError, match="bias must be"):
        gelu(x, weight, torch.zeros(64).bfloat16())
    with pytest.raises(ValueError, match="gelu_bias needs a bias"):
        gelu(x, weight)


@pytest.fixture
def on_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers take CPU tensors for a card's, and Triton's interpreter runs the others."""
    pytest.importorskip("triton", reason="Triton is not installed")
    if torch.cuda.is_available():
        pytest.skip("layers are on the card here")
    monkeypatch.setattr(fused, "runs_on_kernels", lambda weight: True)


def test_rows_that_leave_a_clusters_tile_empty_are_cublas_s(
    folder: Path, runtime: FakeRuntime
) -> None:
    swiglu = FusedGemms(folder, CPU).get("swiglu")
    assert swiglu is not None
    taken = [n for n in range(64, 1280, 64) if swiglu.takes(torch.zeros(n, 64))]
    assert taken == [512, 704, 768, 960, 1024, 1088, 1152, 1216]
    for_all = FusedGemms(folder, CPU, min_rows=gemm.ALL_ROWS).get("swiglu")
    assert for_all is not None
    assert all(for_all.takes(torch.zeros(n, 64)) for n in range(1, 700, 13))


@pytest.mark.usefixtures("on_kernels")
@pytest.mark.parametrize(
    ("num_rows", "is_taken"), [(8, False), (191, False), (192, True), (256, True), (257, False)]
)
def test_layers_take_it_for_the_rows_it_is_fast_for(
    num_rows: int, is_taken: bool, folder: Path, runtime: FakeRuntime
) -> None:
    min_rows = dict.fromkeys(EPILOGUES, 100)
    torch.manual_seed(0)
    gate_up, up = (torch.randn(n, 64).div(8).bfloat16() for n in (96, 48))
    down, bias = torch.randn(64, 48).div(7).bfloat16(), torch.randn(48).bfloat16()
    x, residual = torch.randn(num_rows, 64).bfloat16(), torch.randn(num_rows, 64).bfloat16()

    def outputs() -> list[torch.Tensor]:
        gated = GatedMlp(Linear(gate_up), Linear(down))
        plain = Mlp(Linear(up, bias, activation="gelu"), Linear(down))
        return [layer(x, residual.clone()) for layer in (gated, plain)]

    expected = outputs()
    assert not runtime.calls, "outside of with_gemms nothing is fused"
    with fused.with_gemms(FusedGemms(folder, CPU, min_rows=min_rows)):
        runtime.calls.clear()
        got = outputs()
    called = [kernel.epilogue for kernel, rows in runtime.calls if rows == num_rows and rows > 1]
    assert called == (["swiglu", "gelu_bias"] if is_taken else [])
    for a, b in zip(got, expected, strict=True):
        # The unfused path rounds once more, at values of up to 4.
        torch.testing.assert_close(a.float(), b.float(), atol=2**-5, rtol=2**-6)


@pytest.mark.usefixtures("on_kernels")
@pytest.mark.parametrize(
    ("activation", "with_bias"), [("gelu", False), ("gelu_tanh", False), ("silu", True)]
)
def test_a_gated_mlp_that_is_not_plain_swiglu_is_not_fused(
    activation: Gate, with_bias: bool, folder: Path, runtime: FakeRuntime
) -> None:
    torch.manual_seed(0)
    gate_up, down = torch.randn(96, 64).div(8), torch.randn(64, 48).div(7)
    bias = torch.randn(96) if with_bias else None
    with fused.with_gemms(FusedGemms(folder, CPU, min_rows=dict.fromkeys(EPILOGUES, 8))):
        mlp = GatedMlp(Linear(gate_up, bias), Linear(down), activation)
        mlp(torch.randn(256, 64), torch.randn(256, 64))
    assert not runtime.calls


@pytest.mark.usefixtures("on_kernels", "runtime")
def test_a_weight_that_no_kernel_takes_is_left_to_cublas(folder: Path) -> None:
    with fused.with_gemms(FusedGemms(folder, CPU)):
        assert fused.gemm_for(torch.zeros(64, 64), "gelu_bias") is not None
        assert fused.gemm_for(torch.zeros(60, 64), "gelu_bias") is None
        assert fused.gemm_for(torch.zeros(64, 60), "gelu_bias") is None
        assert fused.gemm_for(torch.zeros(72, 64), "swiglu") is None


@pytest.mark.usefixtures("runtime")
def test_without_kernels_or_for_another_dtype_there_are_none(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    empty = tmp_path_factory.mktemp("empty")
    (empty / GemmKernel("swiglu", OTHER).file_name).touch()
    assert isinstance(gemm.open_gemms(folder, CUDA, torch.bfloat16), FusedGemms)
    assert gemm.open_gemms(folder, CPU, torch.bfloat16) is None
    assert gemm.open_gemms(folder, CUDA, torch.float32) is None
    assert gemm.open_gemms(empty, CUDA, torch.bfloat16) is None
    assert gemm.open_gemms(None, CUDA, torch.bfloat16) is None
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (10, 0))
    assert gemm.open_gemms(folder, CUDA, torch.bfloat16) is None


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.missing(None, CUDA) == "no folder of kernels was given"
    assert files.missing(tmp_path / "no", CUDA) == f"{tmp_path / 'no'} is not a folder"
    monkeypatch.setitem(sys.modules, "tvm_ffi", None)
    assert files.missing(tmp_path, CUDA) == "the package apache-tvm-ffi is not installed"
    with pytest.raises(HotbedError, match="fused GEMM kernels need the package apache-tvm-ffi"):
        files.load(tmp_path / "x.so", "fused GEMM")


@pytest.mark.gpu
@pytest.mark.parametrize("operands", get_args(Operands))
@pytest.mark.parametrize("epilogue", get_args(Epilogue))
@pytest.mark.parametrize("num_rows", [1, 127, 129, 1000, 4097])
@pytest.mark.parametrize(("n", "k"), [(1024, 1024), (6144, 1024), (976, 264), (976, 272)])
def test_every_tile_matches_the_reference_eager_and_replayed(
    operands: Operands, epilogue: Epilogue, num_rows: int, n: int, k: int
) -> None:
    if (name := os.environ.get("HOTBED_KERNEL_DIR")) is None:
        pytest.skip("HOTBED_KERNEL_DIR names no folder of kernels")
    if (reason := files.missing(Path(name), CUDA)) is not None:
        pytest.skip(reason)
    wanted = (epilogue, operands)
    found = [kern for kern in kernels_in(Path(name)) if (kern.epilogue, kern.operands) == wanted]
    if not found:
        pytest.skip(f"the folder has no kernel for {epilogue} in {operands}")
    if operands != "bf16" and k % 16:
        pytest.skip("FP8 comes in 16 bytes")
    x, weight, bias = _inputs(epilogue, num_rows, CUDA, n, k)
    if epilogue in ("plain", "add"):
        bias = None
    before = torch.randn(num_rows, n, device=CUDA).bfloat16() if epilogue == "add" else None
    a: gemm.Matrix = x
    b: gemm.Matrix = weight
    if operands != "bf16":
        a, b = quantize_rows(x), quantize_rows(weight)
        if epilogue == "swiglu":
            b = gate_and_up(b)
    expected = gemm.reference(epilogue, a, b, bias, before)
    for kernel in found:
        fused_gemm = gemm.load(Path(name), kernel, CUDA, 0)
        added = None if before is None else before.clone()
        atol = SUMS_OFF_BY[operands]
        _assert_close(fused_gemm(a, b, bias, added), expected, atol)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = fused_gemm(a, b, bias, added)
        out.fill_(float("nan"))
        if before is not None:
            out.copy_(before)
        graph.replay()
        torch.cuda.synchronize()
        _assert_close(out, expected, atol)
