"""Which types a device computes in, and what they are called."""

from __future__ import annotations

import pytest
import torch

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.rose.compute import Compute, open_mode, resolve_compute

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("dtype", "device", "name"),
    [
        ("auto", CPU, "float32"),
        ("auto", CUDA, "bfloat16"),
        ("bfloat16", CPU, "bfloat16"),
        ("float32", CUDA, "float32"),
        ("fp8", CUDA, "fp8"),
    ],
)
def test_the_name_says_what_was_asked_for(
    dtype: str, device: torch.device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert resolve_compute(dtype, device).name == name


def test_an_unknown_type_is_refused_with_those_there_are() -> None:
    with pytest.raises(HotbedError, match="auto, float32, bfloat16, fp8") as raised:
        resolve_compute("float16", CPU)
    assert raised.value.code is ErrorCode.INVALID_INPUT


def test_fp8_is_refused_where_nothing_computes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never silently in another type."""
    with pytest.raises(HotbedError, match="needs a GPU with FP8 arithmetic, the device is cpu"):
        resolve_compute("fp8", CPU)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(HotbedError, match=r"compute capability 8\.9 or more, cuda has 8\.0"):
        resolve_compute("fp8", CUDA)


def test_fp8_and_invariant_do_not_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with pytest.raises(HotbedError, match="cannot be invariant"):
        resolve_compute("fp8", CUDA, invariant=True)
    assert resolve_compute("auto", CUDA, invariant=True).name == "bfloat16 invariant"


def test_layers_are_built_for_it() -> None:
    mode = open_mode(Compute(torch.bfloat16, fp8=True), None, CPU)
    assert mode.fp8
    assert not mode.invariant
    assert mode.small_steps
