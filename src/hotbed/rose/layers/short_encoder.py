"""All layers of a BERT encoder in one call, for steps of a few tokens on a CPU.

A short text costs little arithmetic; what it costs is reading the weights once, and in torch some
75 calls with a region of OpenMP threads each. One C function for all layers has neither.
`kernels/cpu/encoder.c` says how.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hotbed.core.cache_folder import default_cache_folder
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.batch import PackedBatch, pack
from hotbed.rose.kernels.cpu.build import CannotCompileError
from hotbed.rose.kernels.cpu.encoder import (
    MAX_ROWS,
    MAX_WIDTH,
    WIDTH_MULTIPLE,
    Encoder,
    load_library,
)

_LOG = logging.getLogger("hotbed.rose")
# Difference from the torch path that the self-check allows, relative to the largest state: fp32
# sums in another order differ by some 1e-6.
_TOLERANCE = 1e-5
_CHECKED_LENGTHS = ([MAX_ROWS], [9, 3, 1])
# More threads find no chunk in the narrowest GEMM.
_COLUMNS_OF_A_CHUNK = 32
_MAX_THREADS = 16

Layers = Callable[[Tensor, PackedBatch], Tensor]


@dataclass(frozen=True, slots=True)
class ShortSettings:
    """Of the short path.

    Attributes:
        cache_folder: where the compiled kernel lies.
        max_bytes: of the packed weights. They are a second copy, as longer steps need oneDNN's
            own: a model of more must not double its memory for the sake of short texts.
    """

    cache_folder: Path = field(default_factory=default_cache_folder)
    max_bytes: int = 512 << 20


@dataclass(frozen=True, slots=True)
class ShortLayer:
    """Weights of one layer, each as (weight [out, in], bias [out]); of norms as ([D], [D])."""

    qkv: tuple[Tensor, Tensor]
    out: tuple[Tensor, Tensor]
    attention_norm: tuple[Tensor, Tensor]
    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]
    mlp_norm: tuple[Tensor, Tensor]

    def tensors(self) -> list[Tensor]:
        """In the order the kernel takes them."""
        pairs = (self.qkv, self.out, self.attention_norm, self.up, self.down, self.mlp_norm)
        return [tensor for pair in pairs for tensor in pair]


class ShortEncoder:
    """The layers for steps of at most `max_rows` tokens; made by `short_encoder`."""

    max_rows = MAX_ROWS

    def __init__(
        self, tensors: Sequence[Tensor], spec: AttentionSpec, eps: float, cache_folder: Path
    ) -> None:
        contiguous = [t.contiguous() for t in tensors]
        f, d = contiguous[6].shape
        self._encoder = Encoder(
            load_library(cache_folder),
            num_heads=spec.num_heads,
            d=d,
            f=f,
            eps=eps,
            num_threads=min(torch.get_num_threads(), _MAX_THREADS, -(-d // _COLUMNS_OF_A_CHUNK)),
            weights=[t.data_ptr() for t in contiguous],
        )

    def takes(self, batch: PackedBatch) -> bool:
        """Whether a step is short enough; if so, its threads are woken."""
        if len(batch.token_ids) > self.max_rows:
            return False
        self._encoder.wake()
        return True

    def __call__(self, x_TD: Tensor, batch: PackedBatch) -> Tensor:
        """Embedded tokens [T, D] to the last layer's states [T, D]; pad rows stay as they are."""
        x_TD = x_TD.contiguous()
        out = torch.empty_like(x_TD)
        offsets, rows = batch.cu_seqlens, batch.num_tokens
        self._encoder.run(
            x_TD.data_ptr(), out.data_ptr(), rows, len(offsets) - 1, offsets.data_ptr()
        )
        out[rows:] = x_TD[rows:]
        return out


def short_encoder(
    layers: Sequence[ShortLayer],
    spec: AttentionSpec,
    *,
    eps: float,
    reference: Layers,
    settings: ShortSettings,
) -> ShortEncoder | None:
    """The short path of a model whose activation is exact GELU, or None where it has none.

    It has none off the CPU, in other dtypes, in odd or great widths (silently), without a working
    C compiler, and where it does not give what `reference` gives (one line in the log).

    Args:
        layers: the weights, copied.
        spec: of the attention.
        eps: of the norms.
        reference: the same layers in torch; embedded tokens [T, D] and their batch to states.
        settings: cache folder and limit.
    """
    tensors = [tensor for layer in layers for tensor in layer.tensors()]
    if not _fits(tensors, spec, settings.max_bytes):
        return None
    try:
        short = ShortEncoder(tensors, spec, eps, settings.cache_folder)
    except CannotCompileError as error:
        _LOG.warning("short texts take the slower path: %s", error)
        return None
    difference = _difference(short, reference, len(tensors[5]))
    if not difference <= _TOLERANCE:
        _LOG.warning(
            "short texts take the slower path: the compiled kernel is off by %.1e", difference
        )
        return None
    return short


def _fits(tensors: Sequence[Tensor], spec: AttentionSpec, max_bytes: int) -> bool:
    if not tensors or any(t.device.type != "cpu" or t.dtype != torch.float32 for t in tensors):
        return False
    f, d = tensors[6].shape
    return (
        not spec.causal
        and spec.window is None
        and spec.num_heads == spec.num_kv_heads
        and spec.head_dim % 8 == 0
        and spec.num_heads * spec.head_dim == d
        and d % WIDTH_MULTIPLE == 0
        and f % WIDTH_MULTIPLE == 0
        and max(3 * d, f) <= MAX_WIDTH
        and sum(t.nbytes for t in tensors) <= max_bytes
    )


def _difference(short: ShortEncoder, reference: Layers, d: int) -> float:
    """The largest one from the torch path on random states, relative to the largest state."""
    worst = 0.0
    generator = torch.Generator().manual_seed(0)
    for lengths in _CHECKED_LENGTHS:
        ids = np.zeros(sum(lengths), dtype=np.int32)
        batch = pack(RaggedBatch.from_lengths(ids, np.array(lengths, dtype=np.int32)))
        x_TD = torch.randn(len(ids), d, generator=generator)
        expected = reference(x_TD, batch)
        off = (short(x_TD, batch) - expected).abs().max() / expected.abs().max().clamp(min=1)
        if not off <= worst:  # also if it is NaN
            worst = float(off)
    return worst
