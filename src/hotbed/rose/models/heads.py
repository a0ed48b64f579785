"""The heads of models that score: where their tensors are stored, and the layer made of them.

    pooler       W2 tanh(W1 x + b1) + b2 on the first token          (BERT: pooler, classifier)
    first_token  the same                                            (RoBERTa: classifier)
    last_token   W x on the last token                               (Qwen3: score)
    yes_no       (W[yes] - W[no]) x on the last token, W the output matrix     (Qwen3-Reranker)

Source of the last: the Qwen3 Embedding report, arXiv 2506.05176. Legend: D hidden, L labels.
"""

from __future__ import annotations

import torch

from hotbed.checkpoint.records import Checkpoint, HeadKind, ScoreHead
from hotbed.rose.layers.head import Head
from hotbed.rose.weights import Parameter, linear, load_parameters

_DENSE_AND_OUT: dict[HeadKind, tuple[str, str]] = {
    "pooler": ("pooler.dense", "classifier"),
    "first_token": ("classifier.dense", "classifier.out_proj"),
}


def head_parameters(head: ScoreHead, hidden_size: int) -> dict[str, Parameter]:
    """Parameters by name and the stored tensors they come from."""
    d, num_labels = hidden_size, len(head.labels)
    if head.kind == "yes_no":
        source = "embed_tokens.weight" if head.tied else "lm_head.weight"
        return {"yes_no": Parameter((source,), (2, d), rows=head.yes_no_tokens)}
    if head.kind == "last_token":
        return linear("out", ("score",), (num_labels, d), bias=False)
    dense, out = _DENSE_AND_OUT[head.kind]
    return linear("dense", (dense,), (d, d), bias=True) | linear(
        "out", (out,), (num_labels, d), bias=True
    )


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
    dense = (weights["dense.weight"], weights["dense.bias"]) if "dense.weight" in weights else None
    return Head((weights["out.weight"], weights.get("out.bias")), dense=dense)
