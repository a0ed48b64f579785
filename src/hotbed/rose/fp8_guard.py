"""Holds a model in FP8 to itself in BF16 before it serves: a sample of rows, or it is refused.

FP8 has 3 bits behind the leading one. Most embedders lose little by that, as errors of thousands of
products average out; one whose activations have a few huge channels may lose its meaning, and only
looking tells. The sample is of ids drawn with a seed: ROSE knows no text.
"""

from __future__ import annotations

import logging

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.core.errors import invalid
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.buckets import step_config
from hotbed.rose.buffers import InputBuffers
from hotbed.rose.layers.pool import Pooling, pool_rows
from hotbed.rose.registry import Model

_log = logging.getLogger("hotbed.rose")

MIN_COSINE = 0.98
"""Of every row of the sample to its BF16 row. all-MiniLM-L6-v2 reaches 0.9925 on the sample; on
2,758 real texts 0.988 at least and 0.9978 in the median, with the same rank correlation on the STS
benchmark as in fp32, 0.8207 and 0.8203 (2026-11-30, bench/fp8_quality.py)."""
_LENGTHS = (1, 2, 7, 16, 33, 64, 100, 128, 256, 511)


def check_fp8(
    fp8: Model,
    bf16: Model,
    *,
    pooling: Pooling,
    vocab_size: int,
    max_tokens: int,
    device: torch.device,
    pair_offset: int = 0,
) -> float:
    """The worst cosine of the pooled rows of a sample.

    Args:
        fp8: the model that is to serve.
        bf16: the same weights in BF16.
        pooling: of the rows that are compared, before Dense modules and heads.
        vocab_size: ids are drawn below it.
        max_tokens: longest sequence.
        device: of both.
        pair_offset: of the model's positions, see `hotbed.rose.batch`.

    Raises:
        HotbedError: INVALID_INPUT naming the cosine and the limit, if it is below.
    """
    batch = sample(vocab_size, max_tokens)
    got = _rows(fp8, batch, pooling, device, pair_offset).double()
    expected = _rows(bf16, batch, pooling, device, pair_offset).double()
    worst = float(F.cosine_similarity(got, expected, dim=1).min())
    if not worst >= MIN_COSINE:
        raise invalid(
            f"dtype fp8: this model's rows have a cosine of {worst:.4f} to those in bfloat16, on a "
            f"sample of {batch.num_sequences} sequences; the limit is {MIN_COSINE}. Serve it with "
            "dtype bfloat16"
        )
    _log.info("fp8: cosine to bfloat16 at least %.5f on a sample", worst)
    return worst


def sample(vocab_size: int, max_tokens: int) -> RaggedBatch:
    """Sequences of several lengths, up to the model's limit."""
    lengths = np.array([n for n in _LENGTHS if n <= max_tokens], dtype=np.int32)
    ids = np.random.default_rng(0).integers(0, vocab_size, int(lengths.sum()), dtype=np.int32)
    return RaggedBatch.from_lengths(ids, lengths)


@torch.inference_mode()
def _rows(
    model: Model, batch: RaggedBatch, pooling: Pooling, device: torch.device, pair_offset: int
) -> Tensor:
    """Pooled rows fp32 [S, D], eagerly on torch's current stream."""
    longest = int(batch.lengths.max())
    config = step_config(batch.num_tokens, batch.num_sequences, longest, by_length=False)
    inputs = InputBuffers(config, device, pair_offset=pair_offset)
    host_ints = np.empty(inputs.num_ints, dtype=np.int32)
    inputs.fill(host_ints, batch)
    inputs.device_ints.copy_(torch.from_numpy(host_ints))
    rows = pool_rows(model.forward(inputs.batch), inputs.batch, pooling, normalize=False)
    return rows.pooled[: batch.num_sequences]
