"""Self-attention over packed tokens: fused QKV, optional q/k norm and rotary, backend, output.

Legend: T tokens, D hidden, N query heads, K key/value heads, H head dim.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Generic, Protocol

from torch import Tensor

from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.layers.fp8_linear import Activations
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.norm import BlockEnd, RMSNorm, Stream
from hotbed.rose.layers.rotary import Rotation


class RunsAttention(Protocol):
    """An attention backend, or a layer with an attention of its own (`RelativeBiasAttention`)."""

    def run(self, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor, plan: Any) -> Tensor:
        """See `AttentionBackend.run`."""
        ...


class SelfAttention(Generic[Stream]):
    """One attention layer.

    Args:
        qkv: D to (N + 2 K) H, rows ordered q, k, v.
        out: N H to D; the norm of a post-norm block is part of it.
        spec: heads and mask.
        backend: what computes it.
        q_norm: per-head norm of q before the rotation, or None.
        k_norm: the same for k.
    """

    def __init__(
        self,
        *,
        qkv: Linear,
        out: BlockEnd[Stream],
        spec: AttentionSpec,
        backend: RunsAttention,
        q_norm: RMSNorm | None = None,
        k_norm: RMSNorm | None = None,
    ) -> None:
        self._qkv, self._out, self._spec, self._backend = qkv, out, spec, backend
        self._q_norm, self._k_norm = q_norm, k_norm
        self._kernels = qkv.kernels

    def __call__(
        self,
        x_TD: Activations,
        *,
        residual: Stream,
        plan: Any,
        rotary: Rotation | None = None,
    ) -> Stream:
        """Attention of x [T, D] plus `residual` [T, D].

        Args:
            x_TD: the layer's input.
            residual: added to the output projection, and may be written to.
            plan: of this step, from the backend.
            rotary: of this step, or None for models without.
        """
        spec = self._spec
        qkv = self._qkv(x_TD)
        heads = qkv.view(-1, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
        if self._kernels is not None:
            self._rotate_on_gpu(self._kernels, qkv, rotary)
        q, k, v = heads.split((spec.num_heads, spec.num_kv_heads, spec.num_kv_heads), dim=1)
        if self._kernels is None:
            if self._q_norm is not None and self._k_norm is not None:
                q, k = self._q_norm(q), self._k_norm(k)
            if rotary is not None:
                q, k = rotary.apply(q), rotary.apply(k)
        attended = self._backend.run(q, k, v, plan)
        return self._out(attended.view(len(x_TD), spec.num_heads * spec.head_dim), residual)

    def _rotate_on_gpu(self, kernels: ModuleType, qkv: Tensor, rotary: Rotation | None) -> None:
        """Norm and rotate q and k inside `qkv`."""
        if rotary is None:
            assert self._q_norm is None, "no model norms q and k without rotating them: a bug"
            return
        norm = self._q_norm
        kernels.qk_norm_rope_(
            qkv,
            rotary.positions,
            rotary.cos,
            rotary.sin,
            num_heads=self._spec.num_heads,
            num_kv_heads=self._spec.num_kv_heads,
            q_weight=None if norm is None else norm.weight,
            k_weight=None if self._k_norm is None else self._k_norm.weight,
            eps=0.0 if norm is None else norm.eps,
        )
