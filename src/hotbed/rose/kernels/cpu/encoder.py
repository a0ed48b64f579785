"""encoder.c from Python: addresses of fp32 arrays in, no tensors known here."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import c_float, c_int, c_void_p
from pathlib import Path

from hotbed.rose.kernels.cpu.build import CannotCompileError, compile_library

SOURCE = Path(__file__).with_name("encoder.c")
# As in encoder.c.
MAX_ROWS = 32
MAX_WIDTH = 4096
WIDTH_MULTIPLE = 16


def load_library(folder: Path) -> ctypes.CDLL:
    """Compile encoder.c if `folder` does not have it, and load it.

    Raises:
        CannotCompileError: there is no library, or it cannot be loaded.
    """
    try:
        library = ctypes.CDLL(str(compile_library(SOURCE, folder)))
    except OSError as error:
        raise CannotCompileError(f"the compiled kernel cannot be loaded: {error}") from error
    create, run = library.hotbed_encoder_create, library.hotbed_encoder_run
    create.restype, create.argtypes = c_void_p, [*[c_int] * 4, c_float, c_int, c_void_p]
    run.restype, run.argtypes = None, [*[c_void_p] * 3, c_int, c_int, c_void_p]
    for function in (library.hotbed_encoder_wake, library.hotbed_encoder_destroy):
        function.restype, function.argtypes = None, [c_void_p]
    return library


class Encoder:
    """The layers' packed weights and the threads; both end with this object.

    Args:
        library: from `load_library`.
        num_heads: divides `d`.
        d: width of the states, a multiple of 16; 3 d is at most 4,096.
        f: width of the MLP, a multiple of 16, at most 4,096.
        eps: of the norms.
        num_threads: the calling thread is one of them.
        weights: addresses, 12 a layer, of C-contiguous fp32: weight [out, in] and bias [out] of
            qkv, out, norm 1, up, down, norm 2. Copied.

    Raises:
        MemoryError: there is none for the copy.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        *,
        num_heads: int,
        d: int,
        f: int,
        eps: float,
        num_threads: int,
        weights: Sequence[int],
    ) -> None:
        addresses = (c_void_p * len(weights))(*weights)
        self._run, self._wake = library.hotbed_encoder_run, library.hotbed_encoder_wake
        self._handle = library.hotbed_encoder_create(
            len(weights) // 12, num_heads, d, f, eps, num_threads, addresses
        )
        if self._handle is None:
            raise MemoryError("no memory for the packed weights")
        weakref.finalize(self, library.hotbed_encoder_destroy, self._handle)

    def wake(self) -> None:
        """Wake the threads for a call that comes within some 50 us."""
        self._wake(self._handle)

    def run(self, x: int, out: int, num_rows: int, num_sequences: int, cu_seqlens: int) -> None:
        """All layers, without the GIL.

        Args:
            x: address of fp32 [num_rows, d], num_rows <= MAX_ROWS.
            out: the same, written.
            num_rows: real rows only.
            num_sequences: at most `num_rows`.
            cu_seqlens: address of int32 [num_sequences + 1], from 0 to num_rows, none empty.
        """
        self._run(self._handle, x, out, num_rows, num_sequences, cu_seqlens)
