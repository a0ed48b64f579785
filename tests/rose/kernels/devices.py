"""Where kernels run in tests: in Triton's interpreter without a card, compiled on a card.

Triton decides between the two when it is imported, so a process has one of them. With a card,
``TRITON_INTERPRET=1 pytest`` runs the interpreter's tests all the same.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator

import pytest
import torch

_HAS_TRITON = importlib.util.find_spec("triton") is not None
HAS_CARD = torch.cuda.is_available()
# Without a card no kernel is tested then: test_launch.py fails, so that somebody notices.
TOO_LATE = "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1"
if not HAS_CARD and not TOO_LATE:
    os.environ["TRITON_INTERPRET"] = "1"
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and not TOO_LATE


def require_interpreter() -> None:
    """Skip unless kernels run in the interpreter."""
    if not _HAS_TRITON:
        pytest.skip("Triton is not installed")
    if HAS_CARD and not _INTERPRETED:
        pytest.skip("kernels are compiled for the card here; TRITON_INTERPRET=1 interprets them")
    if TOO_LATE:
        pytest.skip("Triton was imported before its interpreter could be chosen")


def require_compiled() -> None:
    """Skip unless kernels are compiled."""
    if not _HAS_TRITON:
        pytest.skip("Triton is not installed")
    if _INTERPRETED:
        pytest.skip("TRITON_INTERPRET is set: nothing is compiled")


@pytest.fixture(
    params=[
        pytest.param("interpreter", id="interpreter"),
        pytest.param("cuda", marks=pytest.mark.gpu, id="cuda"),
    ]
)
def device(request: pytest.FixtureRequest) -> torch.device:
    """CPU memory for the interpreter, or the card."""
    if request.param == "interpreter":
        require_interpreter()
        return torch.device("cpu")
    require_compiled()
    return torch.device("cuda")


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Type of a kernel's inputs and outputs."""
    return request.param


def assert_close(got: torch.Tensor, expected: torch.Tensor) -> None:
    """`got`, in a kernel's type, equals the fp32 reference of the same inputs.

    fp32: sums of up to 8,192 terms in another order, and approximate exp, rsqrt and erf, stay below
    1e-5 of values near 1. bf16: the one rounding at the store on top, half a unit of 8 bits, 2^-8;
    the interpreter cuts off instead of rounding, 2^-7.
    """
    rtol = 1e-5
    if got.dtype == torch.bfloat16:
        rtol += 2**-8 if got.is_cuda else 2**-7
    torch.testing.assert_close(got.float(), expected.float(), atol=1e-5, rtol=rtol)


class Randoms:
    """Seeded tensors of one device and type."""

    def __init__(self, device: torch.device, dtype: torch.dtype, seed: int = 0) -> None:
        self.device, self.dtype = device, dtype
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Unit normal values."""
        values = torch.randn(*shape, generator=self._generator)
        return values.to(self.device, dtype or self.dtype)

    def integers(self, high: int, count: int) -> torch.Tensor:
        """int32 from 0 to high - 1."""
        values = torch.randint(0, high, (count,), generator=self._generator, dtype=torch.int32)
        return values.to(self.device)


@pytest.fixture
def randoms(device: torch.device, dtype: torch.dtype) -> Randoms:
    """Inputs for the device and type of the test."""
    return Randoms(device, dtype)


@pytest.fixture
def border(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The most rows that still get a program each, made small: beyond it, rows share programs."""
    from hotbed.rose.kernels import launch

    monkeypatch.setattr(launch, "_ONE_WAVE_ROWS", 4)
    launch.row_launch.cache_clear()
    yield 4
    launch.row_launch.cache_clear()
