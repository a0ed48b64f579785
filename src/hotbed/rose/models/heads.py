"""The heads of models that score: where their tensors are stored, and the layer made of them.

    bert, roberta   W2 tanh(W1 x + b1) + b2
    electra         W2 gelu(W1 x + b1) + b2
    distilbert      W2 relu(W1 x + b1) + b2
    deberta         W2 gelu(W1 x + b1) + b2
    modernbert      W2 LayerNorm(gelu(W1 x + b1)) + b2
    decoder         W x
    yes_no          (W[yes] - W[no]) x, W the output matrix     (Qwen3-Reranker, mxbai-rerank-v2)

x is the pooled row: of the first token or, of decoders, the last; ModernBERT's can be the mean.
Source of the last: the Qwen3 Embedding report, arXiv 2506.05176. Legend: D hidden, L labels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hotbed.checkpoint.records import Checkpoint, HeadKind, ScoreHead
from hotbed.rose.layers.head import Head, HeadActivation, HeadDense
from hotbed.rose.weights import Parameter, linear, load_parameters


class _Names(NamedTuple):
    """What a kind's layers are called in the files, and what stands between them."""

    dense: str
    out: str
    activation: HeadActivation
    norm: str | None = None


_WITH_DENSE: dict[HeadKind, _Names] = {
    "bert": _Names("pooler.dense", "classifier", "tanh"),
    "roberta": _Names("classifier.dense", "classifier.out_proj", "tanh"),
    "electra": _Names("classifier.dense", "classifier.out_proj", "gelu"),
    "distilbert": _Names("pre_classifier", "classifier", "relu"),
    "deberta": _Names("pooler.dense", "classifier", "gelu"),
    "modernbert": _Names("head.dense", "classifier", "gelu", "head.norm"),
}


def head_parameters(head: ScoreHead, hidden_size: int) -> dict[str, Parameter]:
    """Parameters by name and the stored tensors they come from."""
    d, num_labels = hidden_size, len(head.labels)
    if head.kind == "yes_no":
        source = "embed_tokens.weight" if head.tied else "lm_head.weight"
        return {"yes_no": Parameter((source,), (2, d), rows=head.yes_no_tokens)}
    if head.kind == "decoder":
        return linear("out", ("score",), (num_labels, d), bias=False)
    names = _WITH_DENSE[head.kind]
    parameters = linear("dense", (names.dense,), (d, d), bias=head.dense_bias)
    if names.norm is not None:
        parameters["norm"] = Parameter((f"{names.norm}.weight",), (d,))
    return parameters | linear("out", (names.out,), (num_labels, d), bias=True)


def head_tensors(head: ScoreHead) -> set[str]:
    """Names of the stored tensors that the head is made of."""
    return {source for p in head_parameters(head, 0).values() for source in p.sources}


def load_head(checkpoint: Checkpoint, head: ScoreHead, device: torch.device) -> Head:
    """The head on `device`, in fp32.

    Raises:
        HotbedError: INVALID_INPUT naming tensors that are missing, or one of a wrong shape or type.
    """
    parameters = head_parameters(head, checkpoint.config.hidden_size)
    weights = load_parameters(checkpoint, parameters, dtype=torch.float32, device=device)
    if head.kind == "yes_no":
        yes, no = weights["yes_no"]
        return Head(((yes - no)[None], None))
    return Head((weights["out.weight"], weights.get("out.bias")), _dense(head, weights))


def _dense(head: ScoreHead, weights: dict[str, Tensor]) -> HeadDense | None:
    names = _WITH_DENSE.get(head.kind)
    if names is None:
        return None
    return HeadDense(
        weights["dense.weight"],
        weights.get("dense.bias"),
        names.activation,
        None if names.norm is None else (weights["norm"], head.norm_eps),
    )
