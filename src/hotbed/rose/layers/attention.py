"""Self-attention over packed tokens: fused QKV, optional q/k norm and rotary, backend, output.

Legend: T tokens, D hidden, N query heads, K key/value heads, H head dim.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.norm import RMSNorm
from hotbed.rose.layers.rotary import Rotary


class SelfAttention:
    """One attention layer.

    Args:
        qkv: D to (N + 2 K) H, rows ordered q, k, v.
        out: N H to D.
        spec: heads and mask.
        backend: what computes it.
        q_norm: per-head norm of q before the rotation, or None.
        k_norm: the same for k.
    """

    def __init__(
        self,
        *,
        qkv: Linear,
        out: Linear,
        spec: AttentionSpec,
        backend: AttentionBackend,
        q_norm: RMSNorm | None = None,
        k_norm: RMSNorm | None = None,
    ) -> None:
        self._qkv, self._out, self._spec, self._backend = qkv, out, spec, backend
        self._q_norm, self._k_norm = q_norm, k_norm

    def __call__(
        self,
        x_TD: Tensor,
        *,
        residual: Tensor,
        plan: Any,
        rotary: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Attention of x [T, D] plus `residual` [T, D].

        Args:
            x_TD: the layer's input.
            residual: added to the output projection.
            plan: of this step, from the backend.
            rotary: (cos, sin) of this step, or None for models without.
        """
        spec = self._spec
        heads = self._qkv(x_TD).view(-1, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
        q, k, v = heads.split((spec.num_heads, spec.num_kv_heads, spec.num_kv_heads), dim=1)
        if self._q_norm is not None and self._k_norm is not None:
            q, k = self._q_norm(q), self._k_norm(k)
        if rotary is not None:
            q, k = Rotary.apply(q, *rotary), Rotary.apply(k, *rotary)
        attended = self._backend.run(q, k, v, plan)
        return self._out(attended.view(len(x_TD), spec.num_heads * spec.head_dim), residual)
