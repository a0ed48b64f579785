"""Triton kernels, one a file: fp32 reference, kernel, launcher, bytes moved. Imported on GPUs only,
but for the folder `cpu`.

BF16 or fp32 in and out, arithmetic in fp32, one rounding at the store; deterministic, no atomics,
nothing read back to the host. Legend: T tokens (rows), D hidden, N heads, K kv heads, H head dim,
F mlp dim.
"""
