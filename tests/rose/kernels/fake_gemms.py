"""A runtime that stands for the fused GEMMs of a folder: computes what a file's name says from the
arguments in the kernel's places.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import torch

from hotbed.rose.kernels import gemm
from hotbed.rose.kernels.fp8 import Fp8Rows
from hotbed.rose.kernels.gemm_files import Epilogue, GemmKernel, Operands


class FakeRuntime(ModuleType):
    """Stands for tvm_ffi.

    Args:
        by_row: each row is computed alone, so that its bits are its own as on a card.
    """

    def __init__(self, *, by_row: bool = False) -> None:
        super().__init__("tvm_ffi")
        self._by_row = by_row
        self.calls: list[tuple[GemmKernel, int]] = []

    def load_module(self, path: str) -> dict[str, Callable[..., None]]:
        kernel = GemmKernel.parse(Path(path).name)
        assert kernel is not None

        def run(
            x: torch.Tensor,
            weight: torch.Tensor,
            result: torch.Tensor | None,
            added: torch.Tensor | None,
            epilogue: tuple[Any, ...],
            scheduler: tuple[Any, ...],
            *rest: None,
        ) -> None:
            assert rest == (None, None, None)
            assert scheduler == (1, None, 8, None, None, None)
            *operands, counter, workspace = epilogue
            assert counter is None
            assert workspace is None
            a: torch.Tensor | Fp8Rows = x
            b: torch.Tensor | Fp8Rows = weight
            if kernel.operands != "bf16":
                columns, rows = operands.pop(0), operands.pop(0)
                assert columns.shape == (1, len(weight))
                assert rows.shape == (1, len(x))
                scales = columns[0]
                if kernel.epilogue == "swiglu":  # in the order of the tiles' columns
                    scales = scales.view(-1, 2).T.reshape(-1)
                a, b = Fp8Rows(x, rows[0]), Fp8Rows(weight, scales)
            bias = None
            if kernel.epilogue.endswith("bias"):
                bias = operands.pop(0)
                assert bias.shape == (1, len(weight))
                bias = bias[0]
            if kernel.epilogue in ("plain", "bias", "add"):
                assert not operands
                assert (added is not None) == (kernel.epilogue == "add")
            else:
                assert result is None
                assert added is None
                (result,) = operands
            assert result is not None
            self.calls.append((kernel, len(x)))
            if not self._by_row:
                result.copy_(gemm.reference(kernel.epilogue, a, b, bias, added))
                return
            assert isinstance(a, torch.Tensor), "for BF16"
            for i in range(len(a)):
                more = None if added is None else added[i : i + 1]
                part = gemm.reference(kernel.epilogue, a[i : i + 1], b, bias, more)
                result[i : i + 1].copy_(part)

        return {"run": run}


def fill(folder: Path, operands: Operands = "bf16") -> Path:
    """Empty files with the names of the kernels that ROSE takes."""
    for epilogue in get_args(Epilogue):
        (folder / GemmKernel.chosen(epilogue, operands).file_name).touch()
    return folder
