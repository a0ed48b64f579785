"""Compiles GEMMs with a fused epilogue from quack's kernels; see `hotbed.rose.build_kernels`.

The weight goes in as it lies, [N, K]. For a gated epilogue quack takes gate and up interleaved, or
(concat layout) reads the halves of a stacked [gate; up] in turn through its tensor map: no second
copy of the weights, and other layers read them as they are.
"""

from __future__ import annotations

import importlib
from typing import Any, get_args

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hotbed.rose.kernels.gemm_files import CLUSTER, Epilogue, GemmKernel

PACKAGE = "quack-kernels"
# Read by quack and by the CuTe compiler when they are imported.
ENVIRONMENT = {"QUACK_ARCH": "90", "CUTE_DSL_ARCH": "sm_90a", "QUACK_CACHE_ENABLED": "0"}
# quack's names.
_ACTIVATIONS: dict[Epilogue, str] = {
    "swiglu": "swiglu",
    "gelu_bias": "gelu_erf",
    "gelu_tanh_bias": "gelu_tanh_approx",
}
# A sample, as the kernel takes any size: rows, columns, depth.
_M, _N, _K = 512, 1024, 512


def load() -> Any:
    """quack's modules, imported; raises ImportError."""
    return importlib.import_module("quack.epilogue.library")


def default_kernels() -> list[GemmKernel]:
    """Every epilogue, in the tile that ROSE takes."""
    return [GemmKernel(epilogue) for epilogue in get_args(Epilogue)]


def compile_kernel(kernel: GemmKernel, library: Any) -> Any:
    """The compiled function, from tensors without data."""
    host: Any = importlib.import_module("quack.gemm_runtime.host")
    # An argument of the kernel, so of no account here; asking the driver for it would need a GPU.
    host.get_max_active_clusters = lambda cluster_size: 1
    gated = kernel.epilogue == "swiglu"
    epilogue = library.linear_act_mod(
        _ACTIVATIONS[kernel.epilogue],
        gated=gated,
        has_c=False,
        has_rowvec=not gated,
        has_colvec=False,
    )
    with FakeTensorMode(), torch.device("cuda"):
        x, weight = (torch.empty(rows, _K, dtype=torch.bfloat16) for rows in (_M, _N))
        operands = {"mAuxOut": torch.empty(_M, _N // 2 if gated else _N, dtype=torch.bfloat16)}
        if not gated:
            operands["mRowVecBroadcast"] = torch.empty(1, _N, dtype=torch.bfloat16)
        plan = epilogue.gemm(
            x,
            weight,
            None,
            None,
            epi_args=operands,
            tile_M=kernel.tile.m,
            tile_N=kernel.tile.n,
            cluster_M=CLUSTER,
            pingpong=kernel.tile.pingpong,
            concat_layout=("B",) if gated else None,
            _launch=False,
        )
    return plan.compiled_fn
