"""The two ceilings of a device: bytes it can read or copy a second, and its matmul rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from hotbed.doctor.report import Ceilings

# Far above any cache, and a matrix that fills the device.
_CPU_BYTES, _CPU_MATRIX = 256 << 20, 1024
_CUDA_BYTES, _CUDA_MATRIX = 2 << 30, 8192
_REPEATS = 10


def measure_ceilings(device: torch.device) -> Ceilings:
    """Medians of ten runs each; takes some seconds on a CPU, less on a GPU."""
    is_cuda = device.type == "cuda"
    num_bytes, n = (_CUDA_BYTES, _CUDA_MATRIX) if is_cuda else (_CPU_BYTES, _CPU_MATRIX)
    dtype = torch.bfloat16 if is_cuda else torch.float32
    with torch.inference_mode():
        source = torch.ones(num_bytes // 4, dtype=torch.int32, device=device)
        target = torch.empty_like(source)
        # A maximum is read at full rate; a sum of integers would be widened on the way.
        read_s = _seconds(source.amax, device)
        copy_s = _seconds(lambda: target.copy_(source), device)
        a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
        matmul_s = _seconds(lambda: a @ b, device)
    return Ceilings(
        device=str(device),
        read_bytes_per_s=num_bytes / read_s,
        copy_bytes_per_s=2 * num_bytes / copy_s,
        matmul_flops=2 * n**3 / matmul_s,
        matmul_dtype=str(dtype).removeprefix("torch."),
    )


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    for _ in range(3):
        work()
    times: list[float] = []
    for _ in range(_REPEATS):
        if device.type == "cuda":
            with torch.cuda.device(device):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                work()
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end) / 1e3)
        else:
            started = time.perf_counter()
            work()
            times.append(time.perf_counter() - started)
    return median(times)
