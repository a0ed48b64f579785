"""The heads of masked language models that are read as SPLADEs: what their tensors are called.

Legend: D hidden, V ids.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from hotbed.checkpoint.records import Checkpoint, SparseHead
from hotbed.core.errors import invalid
from hotbed.rose.layers.linear import Activation, Linear
from hotbed.rose.layers.sparse import MlmHead
from hotbed.rose.weights import Parameter, linear, load_parameters


class _Names(NamedTuple):
    """What the files call the parts; ``word`` is the matrix of a tied head."""

    dense: str
    norm: str
    decoder: str
    bias: str
    word: str = "embeddings.word_embeddings.weight"
    has_biases: bool = True


_LM_HEAD = _Names("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder.weight", "lm_head.bias")
_NAMES: dict[str, _Names] = {
    "BertForMaskedLM": _Names(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder.weight",
        "cls.predictions.bias",
    ),
    "RobertaForMaskedLM": _LM_HEAD,
    "XLMRobertaForMaskedLM": _LM_HEAD,
    "CamembertForMaskedLM": _LM_HEAD,
    "MPNetForMaskedLM": _LM_HEAD,
    "DistilBertForMaskedLM": _Names(
        "vocab_transform", "vocab_layer_norm", "vocab_projector.weight", "vocab_projector.bias"
    ),
    "ModernBertForMaskedLM": _Names(
        "head.dense",
        "head.norm",
        "decoder.weight",
        "decoder.bias",
        word="embeddings.tok_embeddings.weight",
        has_biases=False,
    ),
}
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def load_mlm_head(
    checkpoint: Checkpoint, head: SparseHead, *, device: torch.device, dtype: torch.dtype
) -> MlmHead:
    """The head on `device` in the model's compute type.

    Raises:
        HotbedError: INVALID_INPUT naming tensors that are missing, or one of a wrong shape or type.
    """
    names = _NAMES[checkpoint.architecture]
    if head.hidden_act not in _ACTIVATIONS:
        raise invalid(
            f"hidden_act is {head.hidden_act!r}; supported in a head: {', '.join(_ACTIVATIONS)}",
            param="hidden_act",
        )
    d, v = checkpoint.config.hidden_size, checkpoint.config.vocab_size
    parameters = linear("dense", (names.dense,), (d, d), bias=names.has_biases)
    parameters["norm.weight"] = Parameter((f"{names.norm}.weight",), (d,))
    if names.has_biases:
        parameters["norm.bias"] = Parameter((f"{names.norm}.bias",), (d,))
    output = names.word if head.is_tied else names.decoder
    parameters["decoder.weight"] = Parameter((output,), (v, d))
    # A matrix of its own has a bias of its own in some files; the other one is not used then.
    own_bias = names.decoder.removesuffix("weight") + "bias"
    has_own = not head.is_tied and own_bias in checkpoint.tensors
    parameters["decoder.bias"] = Parameter((own_bias if has_own else names.bias,), (v,))
    weights = load_parameters(checkpoint, parameters, dtype=dtype, device=device)
    return MlmHead(
        Linear(
            weights["dense.weight"],
            weights.get("dense.bias"),
            activation=_ACTIVATIONS[head.hidden_act],
        ),
        (weights["norm.weight"], weights.get("norm.bias"), head.norm_eps),
        Linear(weights["decoder.weight"], weights["decoder.bias"]),
        num_logs=head.num_logs,
    )
