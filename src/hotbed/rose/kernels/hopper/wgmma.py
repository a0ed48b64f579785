"""Source of the tensor core's products on Hopper, for kernels in CUDA C++."""

from __future__ import annotations


def product(
    name: str, columns: int, *, left_in_registers: bool = False, right_by_depth: bool = False
) -> str:
    """A device function `name`(sum, left, right, is_more): 64 x n += 64 x 16 times 16 x n.

    A thread's `sum` has n / 2 floats. Where `is_more` is 0 the sum begins: whatever else writes the
    accumulators, be it zeros, may make the compiler wait for each product (ptxas C7515).

    Args:
        name: of the function.
        columns: n, a multiple of 8 up to 256.
        left_in_registers: `left` is four pairs of BF16 a thread, else a descriptor.
        right_by_depth: a row of the right operand in memory holds columns of one depth, else the
            depth of one column.
    """
    floats = columns // 2
    registers = ", ".join(f"%{i}" for i in range(floats))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(floats))
    if left_in_registers:
        parameter, left = "const unsigned int *a", [f'"r"(a[{i}])' for i in range(4)]
        operand = "{" + ", ".join(f"%{floats + i}" for i in range(4)) + "}"
        transposed = f"{right_by_depth:d}"
    else:
        parameter, left, operand = "unsigned long long a", ['"l"(a)'], f"%{floats}"
        transposed = f"0, {right_by_depth:d}"
    right = floats + len(left)
    inputs = ", ".join([*left, '"l"(b)', '"r"(is_more)'])
    return (
        f"__device__ __forceinline__ void {name}(float (&d)[{floats}], {parameter},"
        f" unsigned long long b, int is_more) {{\n"
        f'  asm volatile("{{.reg .pred more; setp.ne.b32 more, %{right + 1}, 0;'
        f" wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{registers}}},"
        f' {operand}, %{right}, more, 1, 1, {transposed};}}"'
        f" : {outputs} : {inputs});\n}}\n"
    )
