"""The contract of a ragged attention backend: plan once a step, run once a layer.

Legend: T tokens (padded), N query heads, K key/value heads (K divides N), H head dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from hotbed.core.errors import invalid
from hotbed.rose.batch import PackedBatch


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What a model asks of its attention.

    Attributes:
        num_heads: query heads, N.
        num_kv_heads: key/value heads, K.
        head_dim: H.
        causal: whether a token sees nothing to its right.
        window: how many tokens it sees on each side, itself not counted; None for all.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    causal: bool
    window: int | None = None

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            heads = f"{self.num_heads} query heads, {self.num_kv_heads} key/value heads"
            raise invalid(f"attention with {heads}: the second must divide the first")
        # Kernels read a negative window as "all".
        if self.window is not None and self.window < 0:
            raise invalid(f"attention window {self.window} is negative")

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)

    @property
    def group(self) -> int:
        """Query heads for each key/value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def reach(self) -> tuple[int | None, int | None]:
        """How many tokens a token sees to its left and to its right; None for all."""
        return self.window, 0 if self.causal else self.window


@dataclass(frozen=True, slots=True)
class Capability:
    """A backend's row in the table of what can run where; text for a person to read.

    Attributes:
        name: for the setting.
        devices: which ones.
        dtypes: of q, k, v and the result.
        head_dims: and groups, where those are limited.
        masks: full, causal, window.
        supports_capture: see `AttentionBackend`.
        isolates_nan: see `AttentionBackend`.
        missing: None if it can run here, else what it lacks.
    """

    name: str
    devices: str
    dtypes: str
    head_dims: str
    masks: str
    supports_capture: bool
    isolates_nan: bool
    missing: str | None


class AttentionBackend(Protocol):
    """One way to compute softmax(Q K^T * scale) V within each sequence of a packed batch."""

    name: str
    supports_capture: bool
    """Whether `run` can be captured in a CUDA graph and replayed with other lengths."""
    grid_follows_max_seqlen: bool
    """Whether the launch grows with `PackedBatch.max_seqlen`, so that a tighter bound is faster."""
    tells_shapes_apart: bool
    """Whether steps of one length, and of short texts, are worth a configuration of their own
    (`hotbed.rose.buckets`), because `plan` treats them differently."""
    isolates_nan: bool
    """Whether a NaN stays in its sequence. If not, it may reach sequences that lie up to a tile of
    keys before it: tiles are read past a sequence's end, and a weight of 0 times NaN is NaN. Any
    finite value, also in pad rows, never reaches another sequence."""

    def supports(self, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> str | None:
        """None if an engine on `device` can compute this, else why not, for a person to read."""
        ...

    def describe(self) -> Capability:
        """Its row in the table, for this machine."""
        ...

    def prepare(self, spec: AttentionSpec, device: torch.device) -> None:
        """What must not happen under capture: load the kernels of `spec`. Once, at load."""
        ...

    def plan(self, batch: PackedBatch, spec: AttentionSpec) -> Any:
        """Host work for a step; the result is handed to every `run` of that step."""
        ...

    def run(self, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor, plan: Any) -> Tensor:
        """Attention of each token over its own sequence, [T, N, H], contiguous.

        q, k and v may be strided views of one QKV projection. Pad rows of the result are finite.
        """
        ...
