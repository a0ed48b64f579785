# mypy: ignore-errors
"""CUDA C++ compiled at run time with NVRTC, and launched with clusters and PDL.

NVRTC and the driver are reached through NVIDIA's own cuda-bindings, on which torch's CUDA builds
depend: nothing has to be installed, and no nvcc. A kernel takes half a second, once a process.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_ARCHITECTURE = b"--gpu-architecture=sm_90a"
HEADER = Path(__file__).with_name("hopper.cuh")
"""What a source may include."""


class CudaError(RuntimeError):
    """A call of the driver or of NVRTC failed."""


def missing(device: torch.device) -> str | None:
    """None if kernels of this folder run on `device`, else why not, for a person to read."""
    if device.type != "cuda":
        return f"they run on CUDA, not on {device.type}"
    capability = torch.cuda.get_device_capability(device)
    if capability != (9, 0):
        return f"they are for compute capability 9.0, not {capability[0]}.{capability[1]}"
    try:
        from cuda.bindings import driver, nvrtc  # noqa: F401, PLC0415
    except ImportError:
        return "the package cuda-bindings is not installed"
    return None


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel on the current device."""

    handle: Any
    module: Any

    def launch(
        self,
        arguments: Sequence[Any],
        *,
        grid: tuple[int, int],
        threads: int,
        shared_bytes: int = 0,
        cluster: tuple[int, int] = (1, 1),
        pdl: bool = True,
    ) -> None:
        """Enqueue on torch's current stream.

        Args:
            arguments: ctypes values and structures, or tensor maps, in the kernel's order.
            grid: blocks in x and y.
            threads: a block.
            shared_bytes: dynamic shared memory of a block.
            cluster: blocks of a cluster in x and y.
            pdl: whether it may start before the kernel in front of it has ended.
        """
        from cuda.bindings import driver  # noqa: PLC0415

        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = *grid, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared_bytes
        config.hStream = torch.cuda.current_stream().cuda_stream
        ids = driver.CUlaunchAttributeID
        attributes = []
        if cluster != (1, 1):
            attribute = driver.CUlaunchAttribute()
            attribute.id = ids.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dimensions = attribute.value.clusterDim
            dimensions.x, dimensions.y, dimensions.z = *cluster, 1
            attributes.append(attribute)
        if pdl:
            attribute = driver.CUlaunchAttribute()
            attribute.id = ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        config.attrs = attributes
        config.numAttrs = len(attributes)
        addresses = (ctypes.c_void_p * len(arguments))(*map(_address, arguments))
        _check(driver.cuLaunchKernelEx(config, self.handle, ctypes.addressof(addresses), 0))


@functools.lru_cache(maxsize=256)
def compile_function(
    source: Path, prologue: str, name: str, device: torch.device, shared_bytes: int = 0
) -> Function:
    """The kernel `name` of a .cu file, which may use up to `shared_bytes` of dynamic memory.

    Args:
        source: the file.
        prologue: definitions put before it.
        name: of an ``extern "C"`` kernel.
        device: where it will run.
        shared_bytes: over 48 KiB have to be asked for.

    Raises:
        CudaError: with the compiler's log.
    """
    from cuda.bindings import driver  # noqa: PLC0415

    with torch.cuda.device(device):
        torch.cuda.current_stream()  # makes torch's context the current one
        module = _check(driver.cuModuleLoadData(_cubin(source, prologue)))
        handle = _check(driver.cuModuleGetFunction(module, name.encode()))
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _check(driver.cuFuncSetAttribute(handle, attribute, shared_bytes))
    return Function(handle, module)


@functools.lru_cache(maxsize=256)
def _cubin(source: Path, prologue: str) -> bytes:
    from cuda.bindings import nvrtc  # noqa: PLC0415

    code = (prologue + f'#line 1 "{source.name}"\n' + source.read_text()).encode()
    headers = [HEADER.read_bytes()], [HEADER.name.encode()]
    program = _check(nvrtc.nvrtcCreateProgram(code, source.name.encode(), 1, *headers))
    options = [_ARCHITECTURE]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * _check(nvrtc.nvrtcGetProgramLogSize(program))
        _check(nvrtc.nvrtcGetProgramLog(program, log))
        raise CudaError(f"{source.name} does not compile:\n{log.decode(errors='replace')}")
    cubin = b" " * _check(nvrtc.nvrtcGetCUBINSize(program))
    _check(nvrtc.nvrtcGetCUBIN(program, cubin))
    _check(nvrtc.nvrtcDestroyProgram(program))
    return cubin


def tile_map(matrix: Tensor, *, rows: int, columns: int = 64) -> Any:
    """How the copy engine finds [rows, columns] tiles of a BF16 matrix, 128-byte swizzled.

    The map holds the matrix's address: it stays true only as long as the memory does. A tile's rows
    past the matrix come as zeros.
    """
    from cuda.bindings import driver  # noqa: PLC0415

    if matrix.dtype != torch.bfloat16 or matrix.dim() != 2 or matrix.stride(1) != 1:
        raise ValueError("a tile map takes a BF16 matrix with contiguous rows")
    height, width = matrix.shape
    u64, u32 = driver.cuuint64_t, driver.cuuint32_t
    return _check(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            2,
            matrix.data_ptr(),
            [u64(width), u64(height)],
            [u64(2 * matrix.stride(0))],
            [u32(columns), u32(rows)],
            [u32(1), u32(1)],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )


def define(**values: int) -> str:
    """Lines of #define."""
    return "".join(f"#define {name} {value}\n" for name, value in values.items())


def _address(argument: Any) -> int:
    if isinstance(argument, (ctypes._SimpleCData, ctypes.Structure)):
        return ctypes.addressof(argument)
    return int(argument.getPtr())


def _check(returned: tuple[Any, ...]) -> Any:
    """The result of a call of cuda-bindings, which gives (status[, result])."""
    status, *results = returned
    if status.value:
        raise CudaError(f"{type(status).__name__}: {status.name}")
    return results[0] if results else None
