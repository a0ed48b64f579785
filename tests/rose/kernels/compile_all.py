"""Script: compiles every kernel for sm_90 without a card and prints what came out, as JSON.

Run by test_compiled.py. Launchers are called with CPU tensors, and where Triton would launch, the
kernel is compiled for a named target instead.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, mangle_type

from hotbed.rose.kernels import launchers

_OPTIONS = ("num_warps", "launch_pdl", "num_stages")
_INSTRUCTION = re.compile(r"(?:ld|st)\.global[.\w]*|griddepcontrol\.\w+")
_PTXAS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"

reports: list[dict[str, Any]] = []


def compile_instead(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    """Stands for JITFunction.run."""
    options = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs}
    bound = dict(zip((p.name for p in self.params), args, strict=False)) | kwargs
    signature, constants, attributes = {}, {}, {}
    for index, parameter in enumerate(self.params):
        value = bound[parameter.name]
        if parameter.is_constexpr:
            signature[parameter.name] = "constexpr"
            constants[(index,)] = value
        else:
            signature[parameter.name] = mangle_type(value)
            if isinstance(value, torch.Tensor):
                attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=self, signature=signature, constexprs=constants, attrs=attributes)
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
    reports.append(
        {
            "name": self.fn.__name__ + ("_fp8" if writes_fp8(bound) else ""),
            "instructions": _INSTRUCTION.findall(ptx),
            "spilled_bytes": spilled_bytes(ptx),
        }
    )


def writes_fp8(bound: dict[str, Any]) -> bool:
    """Whether one of a launch's arguments is an FP8 matrix."""
    return any(getattr(value, "dtype", None) == torch.float8_e4m3fn for value in bound.values())


def spilled_bytes(ptx: str) -> int:
    """What the assembler says about it."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        command = [str(_PTXAS), "--gpu-name", "sm_90a", "-v", file.name, "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return sum(int(n) for n in re.findall(r"(\d+) bytes spill", done.stderr))


def bf16(*shape: int) -> torch.Tensor:
    """An input whose values do not matter."""
    return torch.zeros(*shape, dtype=torch.bfloat16)


def main() -> None:
    """The 0.6B and 4B Qwen3 shapes and bge-m3's, at few and at many tokens."""
    JITFunction.run = compile_instead
    few, many = 128, 4096
    for num_rows, width in ((few, 1024), (many, 1024), (few, 2560), (few, 8192)):
        x = bf16(num_rows, width)
        launchers.add_rms_norm(x, x, bf16(width), eps=1e-6, pdl=True)
        launchers.rms_norm_fp8(x, bf16(width), eps=1e-6, pdl=True)
        launchers.fp8_rows(x, "bias_gelu", bf16(width), pdl=True)
    for num_rows in (few, many):
        x, w = bf16(num_rows, 1024), bf16(1024)
        launchers.layer_norm(x, w, w, eps=1e-6, linear_bias=w, residual=x, pdl=True)
        launchers.layer_norm_fp8(x, w, w, eps=1e-6, linear_bias=w, residual=x, pdl=True)
        ids = torch.zeros(num_rows, dtype=torch.int32)
        launchers.embed_norm(ids, ids, x, x, w, w, eps=1e-6, pdl=True)
    for activation in ("silu", "gelu", "gelu_tanh"):
        launchers.swiglu(bf16(few, 2 * 9728), activation, pdl=True)
        launchers.fp8_rows(bf16(few, 2 * 3072), activation, pdl=True)
    launchers.fp8_rows(bf16(few, 2 * 9728), "silu", pdl=True)
    for num_rows in (few, many):
        launchers.fp8_rows(bf16(num_rows, 3072), pdl=True)
    launchers.bias_gelu_(bf16(few, 4096), bf16(4096), pdl=True)
    table = torch.zeros(few, 64)
    launchers.qk_norm_rope_(
        bf16(few, 32 * 128),
        torch.zeros(few, dtype=torch.int32),
        table,
        table,
        num_heads=16,
        num_kv_heads=8,
        q_weight=bf16(128),
        k_weight=bf16(128),
        eps=1e-6,
        pdl=True,
    )
    for rows in (few, many):
        launchers.fixed_gemm(bf16(rows, 1024), bf16(3072, 1024), bf16(3072), pdl=True)
        x = bf16(rows, 1024)
        launchers.fixed_gemm(bf16(rows, 3072), bf16(1024, 3072), None, x, pdl=True)
    states = torch.zeros(few, 1024)
    launchers.fixed_gemm(states, torch.zeros(768, 1024), torch.zeros(768), pdl=True)
    launchers.unit_rows(states, pdl=True)
    cu_seqlens = torch.zeros(10, dtype=torch.int32)
    for rows in (few, 320):
        launchers.short_attention(
            bf16(rows, 32 * 128), cu_seqlens, num_heads=16, num_kv_heads=8, scale=1.0, pdl=True
        )
    launchers.pool(bf16(many, 1024), cu_seqlens, pooling="mean", normalize=True, pdl=True)
    launchers.pool(bf16(many, 1024), cu_seqlens, pooling="last", normalize=True, pdl=True)
    print(json.dumps(reports))


main()
