"""Torch's own varlen_attn: the default on a GPU where nothing better is installed.

In torch 2.11 to 2.13 it is FlashAttention 2 (sm_80 code, also on Hopper). H200, 2026-11-30: head
dim 128, 16/8 heads, 14 us at 32 x 32, 114 us at 16 x 512 (FlashAttention 4: 13 and 85). Its grid is
ceil(max_seqlen / 128) x slots x heads from the host's `max_seqlen`: shorter sequences are right
but leave empty blocks.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hotbed.rose.attention.backend import AttentionSpec, Capability
from hotbed.rose.batch import PackedBatch

_DTYPES = (torch.bfloat16, torch.float16)
_MAX_HEAD_DIM = 256
_MIN_CAPABILITY = (8, 0)


def _gqa_arguments(parameters: Mapping[str, object]) -> dict[str, Any]:
    """torch 2.12 and later refuse fewer key/value heads without this argument, 2.11 lacks it."""
    return {"enable_gqa": True} if "enable_gqa" in parameters else {}


@functools.cache
def _varlen_attn() -> Callable[..., Any]:
    """Torch's function; imported when it is needed: it brings Triton, 2 s a CPU need not pay."""
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415

    return functools.partial(
        varlen_attn, **_gqa_arguments(inspect.signature(varlen_attn).parameters)
    )


@dataclass(frozen=True, slots=True)
class VarlenPlan:
    """The step's offsets on the device, the host's bound on its lengths, and the mask."""

    cu_seqlens: Tensor
    max_seqlen: int
    scale: float
    window_size: tuple[int, int]


class VarlenBackend:
    """`torch.nn.attention.varlen.varlen_attn`."""

    name = "varlen"
    supports_capture = True
    grid_follows_max_seqlen = True
    tells_shapes_apart = False
    isolates_nan = True

    def supports(self, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> str | None:
        """See `AttentionBackend.supports`."""
        if device.type != "cuda":
            return f"it runs on CUDA, not on {device.type}"
        if dtype not in _DTYPES:
            return f"it computes bfloat16 or float16, not {str(dtype).removeprefix('torch.')}"
        if spec.head_dim % 8 or spec.head_dim > _MAX_HEAD_DIM:
            return (
                f"head dim {spec.head_dim} is not a multiple of 8 up to {_MAX_HEAD_DIM}, its limit"
            )
        return _missing(device)

    def describe(self) -> Capability:
        """See `AttentionBackend.describe`."""
        return Capability(
            name=self.name,
            devices="cuda, compute capability 8.0 and up",
            dtypes="bfloat16, float16",
            head_dims=f"multiples of 8 up to {_MAX_HEAD_DIM}",
            masks="full, causal, window",
            supports_capture=self.supports_capture,
            isolates_nan=self.isolates_nan,
            missing=_missing(torch.device("cuda")),
        )

    def prepare(self, spec: AttentionSpec, device: torch.device) -> None:
        """See `AttentionBackend.prepare`: torch brings the kernels."""
        _varlen_attn()

    def plan(self, batch: PackedBatch, spec: AttentionSpec) -> VarlenPlan:
        """See `AttentionBackend.plan`."""
        left, right = (-1 if side is None else side for side in spec.reach)
        # At a bound of 1 the kernel takes q as [slots, N, H] and fails on slots without tokens.
        return VarlenPlan(batch.cu_seqlens, max(2, batch.max_seqlen), spec.scale, (left, right))

    def run(self, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor, plan: VarlenPlan) -> Tensor:
        """See `AttentionBackend.run`."""
        out = _varlen_attn()(
            q_TNH,
            k_TKH,
            v_TKH,
            plan.cu_seqlens,
            plan.cu_seqlens,
            plan.max_seqlen,
            plan.max_seqlen,
            scale=plan.scale,
            window_size=plan.window_size,
        )
        assert isinstance(out, Tensor), "a tuple comes only with return_aux"
        return out


def _missing(device: torch.device) -> str | None:
    if not torch.cuda.is_available():
        return f"this torch ({torch.__version__}) finds no CUDA device"
    capability = torch.cuda.get_device_capability(device)
    if capability < _MIN_CAPABILITY:
        return f"compute capability {capability[0]}.{capability[1]} is below 8.0"
    return None
