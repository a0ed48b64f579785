"""Torch's scaled_dot_product_attention over groups of equal length: the reference, and the CPU's.

One unmasked call for all sequences of one length. Measured on a CPU (2026-11-30): 32 texts of 16
tokens take 87 ms so against 561 ms with a call each; a block-diagonal mask over the packed rows or
nested tensors are two to twenty times slower.

On CUDA the same calls run as cuDNN's or torch's flash kernel, never as the unfused formula. For
many sequences of one length cuDNN's dense layout is the fastest there is: 554 TFLOP/s at 50 x 512,
head dim 128, against 413 for FlashAttention 4 over offsets (H200, 2026-11-30). It takes the lengths
from the host, though, so a captured graph holds for one layout only: `by_shape` uses it so. q, k
and v go in as strided views, and the result comes in the order of q's strides, [n, L, N, H]: no
copy.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from hotbed.rose.attention.backend import AttentionSpec, Capability
from hotbed.rose.batch import LengthGroup, PackedBatch

_FUSED = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]


@dataclass(frozen=True, slots=True)
class SdpaPlan:
    """Groups of the step, the mask of each (None where `causal` says all), and the spec."""

    groups: tuple[LengthGroup, ...]
    masks: tuple[Tensor | None, ...]
    spec: AttentionSpec


class SdpaBackend:
    """Reference backend; any head dim and dtype that SDPA takes, on batches that have groups."""

    name = "sdpa"
    supports_capture = False
    grid_follows_max_seqlen = False
    tells_shapes_apart = False
    isolates_nan = True

    def supports(self, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> str | None:
        """See `AttentionBackend.supports`."""
        if device.type != "cpu":
            return "it needs the lengths on the host, and steps on a GPU have them on the device"
        return None

    def describe(self) -> Capability:
        """See `AttentionBackend.describe`."""
        return Capability(
            name=self.name,
            devices="cpu",
            dtypes="any",
            head_dims="any",
            masks="full, causal, window",
            supports_capture=self.supports_capture,
            isolates_nan=self.isolates_nan,
            missing=None,
        )

    def prepare(self, spec: AttentionSpec, device: torch.device) -> None:
        """See `AttentionBackend.prepare`."""

    def plan(self, batch: PackedBatch, spec: AttentionSpec) -> SdpaPlan:
        """See `AttentionBackend.plan`."""
        device = batch.cu_seqlens.device
        masks = tuple(_mask(group.length, spec, device) for group in batch.groups)
        return SdpaPlan(batch.groups, masks, spec)

    def run(
        self,
        q_TNH: Tensor,
        k_TKH: Tensor,
        v_TKH: Tensor,
        plan: SdpaPlan,
    ) -> Tensor:
        """See `AttentionBackend.run`."""
        assert plan.groups, "a batch without groups reached SDPA: a bug in the engine"
        spec = plan.spec
        total, num_tokens = q_TNH.shape[0], plan.groups[-1].stop
        whole = len(plan.groups) == 1 and num_tokens == total
        out = None if whole else torch.empty_like(q_TNH, memory_format=torch.contiguous_format)
        for group, mask in zip(plan.groups, plan.masks, strict=True):
            rows = slice(group.start, group.stop)
            shape = (group.count, group.length, -1, spec.head_dim)
            q, k, v = (x[rows].view(shape).transpose(1, 2) for x in (q_TNH, k_TKH, v_TKH))
            with _kernels(q, mask):
                attended = F.scaled_dot_product_attention(
                    q,
                    k,
                    v,
                    attn_mask=mask,
                    is_causal=spec.causal and mask is None,
                    scale=spec.scale,
                    enable_gqa=spec.num_heads != spec.num_kv_heads,
                ).transpose(1, 2)
            if out is None:
                return attended.reshape(total, spec.num_heads, spec.head_dim)
            out[rows].view(shape).copy_(attended)
        assert out is not None, "one group is the whole batch: returned above"
        out[num_tokens:].zero_()
        return out


def _mask(length: int, spec: AttentionSpec, device: torch.device) -> Tensor | None:
    """What is visible, bool [length, length]; None if no window cuts into the sequence."""
    if spec.window is None or spec.window >= length - 1:
        return None
    visible = torch.ones(length, length, dtype=torch.bool, device=device).tril_(
        0 if spec.causal else spec.window
    )
    return visible.triu_(-spec.window)


def _kernels(q: Tensor, mask: Tensor | None) -> AbstractContextManager[None]:
    """On CUDA: cuDNN first, then flash. Both know neither fp32 nor (flash) masks."""
    if q.is_cuda and q.dtype != torch.float32 and mask is None:
        return sdpa_kernel(_FUSED, set_priority=True)
    return nullcontext()
