"""The contract of a ragged attention backend: plan once a step, run once a layer.

Legend: T tokens (padded), N query heads, K key/value heads (K divides N), H head dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from hotbed.rose.batch import PackedBatch


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What a model asks of its attention."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    causal: bool

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)


class AttentionBackend(Protocol):
    """One way to compute softmax(Q K^T * scale) V within each sequence of a packed batch."""

    name: str
    supports_capture: bool
    """Whether `run` can be captured in a CUDA graph and replayed with other lengths."""

    def supports(self, spec: AttentionSpec, device_type: str) -> str | None:
        """None if the backend computes this, else why not, for a person to read."""
        ...

    def plan(self, batch: PackedBatch, spec: AttentionSpec) -> Any:
        """Host work for a step; the result is handed to every `run` of that step."""
        ...

    def run(self, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor, plan: Any) -> Tensor:
        """Attention of each token over its own sequence, [T, N, H].

        q, k and v may be strided views of one QKV projection. Pad rows of the result are finite.
        """
        ...
