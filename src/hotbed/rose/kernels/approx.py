# mypy: ignore-errors
"""The special function units' 1 / x and 2^x, each one instruction and off by about 1e-7 of itself.

Triton's own forms add up to four instructions an element for denormal numbers, of which there are
none here: arguments of `reciprocal` are 1 and above, and 2^x below 1e-38 may as well be 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

COMPILED = not triton.knobs.runtime.interpret
"""What launchers give for APPROX: the interpreter knows no assembly."""


@triton.jit
def reciprocal(x, APPROX: tl.constexpr):
    """1 / x in fp32."""
    if APPROX:
        y = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        y = 1.0 / x
    return y


@triton.jit
def power_of_two(x, APPROX: tl.constexpr):
    """2^x in fp32."""
    if APPROX:
        y = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        y = tl.exp2(x)
    return y
