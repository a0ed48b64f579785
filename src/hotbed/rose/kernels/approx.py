# mypy: ignore-errors
"""What the card has an instruction for and Triton's interpreter does not do, or not rightly.

The special function units' 1 / x and 2^x are off by about 1e-7 of themselves. Triton's own forms
add up to four instructions an element for denormal numbers, of which there are none here: arguments
of `reciprocal` are 1 and above, and 2^x below 1e-38 may as well be 0.
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


@triton.jit
def to_e4m3(x, APPROX: tl.constexpr):
    """fp32 x to FP8, to the nearest, ties to even; up to 448 x must hold by itself.

    The interpreter's cast cuts off, and is wrong by a factor of 2 where rounding up would reach the
    next power of two. So x is rounded in fp32 there: its bits to the upper 3 of 23 behind the
    point, numbers below the normal ones to multiples of 2^-9.
    """
    if not APPROX:
        bits = x.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFFF + ((bits >> 20) & 1)) & ~0xFFFFF
        normal = bits.to(tl.float32, bitcast=True)
        subnormal = (x + 24576.0) - 24576.0  # 1.5 * 2^14, where fp32 goes in steps of 2^-9
        x = tl.where(tl.abs(x) < 0.015625, subnormal, normal)
    return x.to(tl.float8e4nv)


@triton.jit
def _larger_or_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def quantized(v, APPROX: tl.constexpr):
    """e4m3 values [ROWS, BLOCK] and fp32 scales [ROWS] of fp32 v [ROWS, BLOCK]; see `fp8`."""
    largest = tl.reduce(tl.abs(v), 1, _larger_or_nan)
    largest = tl.where(largest < 1e-30, 1e-30, largest)
    return to_e4m3(v * (448.0 / largest)[:, None], APPROX), largest / 448.0
