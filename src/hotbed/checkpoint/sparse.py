"""Which models give sparse outputs, and how: SPLADE's kind, and bge-m3's head for token weights.

A SPLADE is a masked language model: a folder of sentence-transformers' SparseEncoder says so, a
bare ``…ForMaskedLM`` does not (as an embedder it is read as sentence-transformers reads it, with
mean pooling), so there `load_checkpoint(task="sparse")` has to. Sources: Formal et al. 2021, arXiv
2109.10086; bge-m3: Chen et al. 2024, arXiv 2402.03216.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

from hotbed.checkpoint.config_fields import CONFIG_FILE, Architecture
from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.modules import MODULES_FILE, SPARSE_MODULES, Module
from hotbed.checkpoint.output_records import SparseHead
from hotbed.checkpoint.safetensors_index import read_header
from hotbed.checkpoint.tensor_records import TensorInfo
from hotbed.checkpoint.token_ids import TokenIds
from hotbed.core.errors import invalid

MLM_MODELS = (
    "BertForMaskedLM",
    "RobertaForMaskedLM",
    "XLMRobertaForMaskedLM",
    "CamembertForMaskedLM",
    "DistilBertForMaskedLM",
    "MPNetForMaskedLM",
    "ModernBertForMaskedLM",
)
"""Architectures whose masked language model's head is known."""
SPARSE_HEAD_FILE = "sparse_linear.safetensors"
_ACTIVATIONS: dict[str, Literal[1, 2]] = {"relu": 1, "log1p_relu": 2}
_UNUSED = ("cls_token", "eos_token", "pad_token", "unk_token")
_MODERNBERT_EPS = 1e-5
_log = logging.getLogger(__name__)


def read_splade(
    folder: ModelFolder,
    transformer: ModelFolder,
    modules: tuple[Module, ...] | None,
    architecture: Architecture,
) -> SparseHead:
    """The head of a model that is read as a SPLADE.

    Raises:
        HotbedError: INVALID_INPUT naming the class, the modules, or the field of the pooling, and
            what is supported.
    """
    kinds = [module.kind for module in modules or ()]
    if kinds not in ([], list(SPARSE_MODULES)):
        raise unsupported(folder.path / MODULES_FILE, "modules", kinds, (list(SPARSE_MODULES),))
    path = transformer.path / CONFIG_FILE
    if architecture.name not in MLM_MODELS:
        raise unsupported(path, "architectures", [architecture.name], MLM_MODELS)
    num_logs: Literal[1, 2] = 1
    for module in modules or ():
        if module.kind == "SpladePooling":
            pooling = folder.sub(module.path).file("config.json")
            raw = read_json_object(pooling)
            if raw.get("pooling_strategy", "max") != "max":
                raise unsupported(pooling, "pooling_strategy", raw["pooling_strategy"], ("max",))
            activation = raw.get("activation_function", "relu")
            if activation not in _ACTIVATIONS:
                raise unsupported(pooling, "activation_function", activation, tuple(_ACTIVATIONS))
            num_logs = _ACTIVATIONS[activation]
    config = read_json_object(path)
    return SparseHead(
        kind="mlm",
        num_logs=num_logs,
        hidden_act=_activation(architecture.name, config),
        norm_eps=_norm_eps(architecture.name, config),
        is_tied=config.get("tie_word_embeddings", True) is True,
    )


def read_token_weights(
    folder: ModelFolder, transformer: ModelFolder, *, width: int, weights: bool
) -> SparseHead | None:
    """bge-m3's head, a linear layer in a file of its own; None if the folder has none.

    Raises:
        HotbedError: INVALID_INPUT if the file does not hold a layer from `width` to 1.
    """
    if not folder.has(SPARSE_HEAD_FILE):
        warn_of_pickle(folder, "sparse_linear", "sparse")
        return None
    tokens = TokenIds(transformer)
    found = (tokens.special(name) for name in _UNUSED)
    return SparseHead(
        kind="token_weights",
        tensors=read_linear(folder, SPARSE_HEAD_FILE, (1, width)) if weights else {},
        unused_tokens=tuple(sorted({token for token in found if token is not None})),
    )


def read_linear(folder: ModelFolder, name: str, shape: tuple[int, int]) -> dict[str, TensorInfo]:
    """``weight`` of this shape [out, in] and ``bias`` from a file of their own.

    Raises:
        HotbedError: INVALID_INPUT naming what the file holds instead.
    """
    path = folder.path / name
    held = read_header(path)
    wanted = {"weight": shape, "bias": shape[:1]}
    if {tensor: info.shape for tensor, info in held.items()} != wanted:
        raise invalid(
            f"{path}: holds { ({tensor: info.shape for tensor, info in held.items()}) }, the"
            f" model's hidden_size asks for {wanted}",
            param=name,
        )
    return held


def warn_of_pickle(folder: ModelFolder, name: str, output: str) -> None:
    """Say that a head is there in a form that is not loaded."""
    if folder.has(f"{name}.pt"):
        _log.warning(
            "%s: %s.pt is there, but Hotbed loads safetensors only, so the model gives no %s"
            " output. Where you trust the file, python -m hotbed.rose.convert_weights %s writes %s"
            ".safetensors beside it",
            folder.name, name, output, folder.path, name,
        )  # fmt: skip


def _activation(name: str, config: dict[str, Any]) -> str:
    """Of the head's dense layer; RoBERTa's kind and MPNet have GELU whatever the config says."""
    if name == "BertForMaskedLM":
        return str(config.get("hidden_act", "gelu"))
    if name == "DistilBertForMaskedLM":
        return str(config.get("activation", "gelu"))
    if name == "ModernBertForMaskedLM":
        activation = config.get("classifier_activation", "gelu")
        if activation != "gelu":
            raise invalid(
                f"classifier_activation is {activation!r}; supported: gelu",
                param="classifier_activation",
            )
    return "gelu"


def _norm_eps(name: str, config: dict[str, Any]) -> float:
    if name == "ModernBertForMaskedLM":
        return float(config.get("norm_eps", _MODERNBERT_EPS))
    if name == "DistilBertForMaskedLM":
        return 1e-12
    return float(config.get("layer_norm_eps", 1e-12))
