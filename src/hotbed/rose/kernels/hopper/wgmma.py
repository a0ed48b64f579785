"""Source of the tensor core's products on Hopper, for kernels in CUDA C++."""

from __future__ import annotations


def product(name: str, columns: int) -> str:
    """A device function `name`(sum, left, right, is_more): 64 x n += 64 x 16 times 16 x n.

    A thread's `sum` has n / 2 floats; the operands are descriptors. Where `is_more` is 0 the sum
    begins: whatever else writes the accumulators, be it zeros, may make the compiler wait for each
    product (ptxas C7515).

    Args:
        name: of the function.
        columns: n, a multiple of 8 up to 256.
    """
    floats = columns // 2
    registers = ", ".join(f"%{i}" for i in range(floats))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(floats))
    return (
        f"__device__ __forceinline__ void {name}(float (&d)[{floats}], unsigned long long a,"
        f" unsigned long long b, int is_more) {{\n"
        f'  asm volatile("{{.reg .pred more; setp.ne.b32 more, %{floats + 2}, 0;'
        f" wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{registers}}},"
        f' %{floats}, %{floats + 1}, more, 1, 1, 0, 0;}}"'
        f' : {outputs} : "l"(a), "l"(b), "r"(is_more));\n}}\n'
    )
