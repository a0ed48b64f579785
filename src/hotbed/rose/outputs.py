"""Outputs besides dense rows: from the states of some sequences' tokens to rows and their counts.

Two halves, so that nobody waits for a device: `Outputs.make` enqueues what runs where the states
are; `Made.collect` does the rest on the host, once the values have come over. What a sequence gives
depends on it alone, so how sequences are put together does not matter.
Legend: T tokens, S sequences, D hidden, W elements in a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotbed.checkpoint.records import Checkpoint, SparseHead
from hotbed.core.output import SPARSE_ENTRY, OutputKind, OutputSpec
from hotbed.core.ragged import Int32Array
from hotbed.core.rows import RowSet
from hotbed.rose.layers.dense import Dense, are_finite, project
from hotbed.rose.layers.quantize import finish
from hotbed.rose.layers.sparse import MlmHead, TokenWeights
from hotbed.rose.models.output_heads import load_mlm_head
from hotbed.rose.recipe import load_dense
from hotbed.rose.weights import load_fp32


class TokenView(NamedTuple):
    """The tokens of S sequences, end to end, at least one each.

    Attributes:
        states: [T, D], without pad rows.
        cu_seqlens: int32 [S + 1] on the states' device, from 0 to T.
        lengths: int32 [S] on the host.
        token_ids: int32 [T] on the host.
    """

    states: Tensor
    cu_seqlens: Tensor
    lengths: Int32Array
    token_ids: Int32Array


Collect = Callable[[NDArray[Any], NDArray[np.bool_]], tuple[RowSet, NDArray[np.bool_]]]
"""(values, finite) of a `Made` on the host to the rows and bool [S]; keeps no view of them."""


class Made(NamedTuple):
    """What was enqueued for one output.

    Attributes:
        values: of the output's own shape, on the states' device.
        finite: bool [T] or [S], whether all values on a token's or sequence's way were finite.
        collect: the rest.
    """

    values: Tensor
    finite: Tensor
    collect: Collect


@dataclass(frozen=True, slots=True)
class MultiVector:
    """Layers on every token's state; see `hotbed.checkpoint.output_records.MultiVectorHead`."""

    dense: tuple[Dense, ...]
    normalize: bool
    skips_first: bool


@dataclass(frozen=True, slots=True)
class Outputs:
    """The heads of one embedding model; `first` is what it gives to whoever has no wishes."""

    first: OutputKind = "dense"
    multi_vector: MultiVector | None = None
    sparse: TokenWeights | MlmHead | None = None
    unused_tokens: tuple[int, ...] = ()

    @staticmethod
    def load(checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> Outputs:
        """The heads on `device`, small ones in fp32, a language model's in `dtype`."""
        head = checkpoint.multi_vector
        multi_vector = None
        if head is not None:
            layers = load_dense(head.dense, device)
            multi_vector = MultiVector(layers, head.normalize, head.skips_first)
        sparse = checkpoint.sparse
        return Outputs(
            first=checkpoint.outputs[0][0],
            multi_vector=multi_vector,
            sparse=None if sparse is None else _load_sparse(checkpoint, sparse, device, dtype),
            unused_tokens=() if sparse is None else sparse.unused_tokens,
        )

    def make(self, view: TokenView, spec: OutputSpec) -> Made:
        """Enqueue one output of these sequences; launches only, the host does not wait."""
        if spec.kind == "tokens":
            states = view.states.float()
            values = finish(states, spec, normalize=False, quantizer="none")
            return Made(values, are_finite(states), _collect_tokens(view.lengths, 0))
        if spec.kind == "multi_vector":
            head = self.multi_vector
            assert head is not None, "who asks has looked at the model's outputs: a bug"
            vectors, finite = project(view.states.float(), head.dense)
            values = finish(vectors, spec, normalize=head.normalize, quantizer="none")
            return Made(values, finite, _collect_tokens(view.lengths, int(head.skips_first)))
        assert self.sparse is not None, "who asks has looked at the model's outputs: a bug"
        if isinstance(self.sparse, TokenWeights):
            weights, finite = self.sparse(view.states)
            collect = _collect_weights(view.lengths, view.token_ids, self.unused_tokens)
            return Made(weights, finite, collect)
        offsets = [0, *np.cumsum(view.lengths).tolist()]
        rows = self.sparse(view.states, view.cu_seqlens, offsets)
        return Made(rows, are_finite(rows), _collect_vocabulary)


def _load_sparse(
    checkpoint: Checkpoint, head: SparseHead, device: torch.device, dtype: torch.dtype
) -> TokenWeights | MlmHead:
    if head.kind == "mlm":
        return load_mlm_head(checkpoint, head, device=device, dtype=dtype)
    tensors = load_fp32(head.tensors, device=device)
    weight, bias = (tensors[name] for name in sorted(tensors, reverse=True))
    return TokenWeights(weight, bias)


def _collect_tokens(lengths: Int32Array, num_skipped: int) -> Collect:
    """A row a token, all but the first `num_skipped` (0 or 1) of each sequence."""

    def collect(
        values: NDArray[Any], finite: NDArray[np.bool_]
    ) -> tuple[RowSet, NDArray[np.bool_]]:
        starts = _starts(lengths)
        of_sequence = np.logical_and.reduceat(finite, starts)
        if not num_skipped:
            return RowSet(values.copy(), lengths), of_sequence
        keep = np.ones(len(values), dtype=np.bool_)
        keep[starts] = False
        return RowSet(values[keep], lengths - 1), of_sequence

    return collect


def _collect_weights(
    lengths: Int32Array, token_ids: Int32Array, unused: tuple[int, ...]
) -> Collect:
    """For each id of a sequence the largest of its tokens' weights."""

    def collect(
        values: NDArray[Any], finite: NDArray[np.bool_]
    ) -> tuple[RowSet, NDArray[np.bool_]]:
        of_sequence = np.logical_and.reduceat(finite, _starts(lengths))
        wanted = (values > 0) & ~np.isin(token_ids, unused)
        sequence = np.repeat(np.arange(len(lengths)), lengths)[wanted]
        tokens, weights = token_ids[wanted], values[wanted]
        order = np.lexsort((tokens, sequence))
        sequence, tokens, weights = sequence[order], tokens[order], weights[order]
        is_first = np.ones(len(tokens), dtype=np.bool_)
        is_first[1:] = (tokens[1:] != tokens[:-1]) | (sequence[1:] != sequence[:-1])
        firsts = np.flatnonzero(is_first)
        largest = np.maximum.reduceat(weights, firsts) if len(weights) else weights
        return _entries(sequence[is_first], tokens[is_first], largest, len(lengths)), of_sequence

    return collect


def _collect_vocabulary(
    values: NDArray[Any], finite: NDArray[np.bool_]
) -> tuple[RowSet, NDArray[np.bool_]]:
    """The ids of each row [S, V] whose weight is above 0."""
    sequence, tokens = np.nonzero(values > 0)
    return _entries(sequence, tokens, values[sequence, tokens], len(values)), finite.copy()


def _entries(
    sequence: NDArray[Any], tokens: NDArray[Any], weights: NDArray[Any], num_sequences: int
) -> RowSet:
    rows = np.empty((len(tokens), 1), dtype=SPARSE_ENTRY)
    rows["token"][:, 0] = tokens
    rows["weight"][:, 0] = weights
    counts = np.bincount(sequence, minlength=num_sequences).astype(np.int32)
    return RowSet(rows, counts)


def _starts(lengths: Int32Array) -> NDArray[np.int64]:
    return np.cumsum(lengths, dtype=np.int64) - lengths
