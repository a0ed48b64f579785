"""What the sentence-transformers files say of the whole model: pooling, normalisation, prompts."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hotbed.checkpoint.config_fields import Architecture
from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.modules import Module
from hotbed.checkpoint.records import Pooling, PoolingConfig, Prompts
from hotbed.core.errors import invalid
from hotbed.core.model_info import Task

SETTINGS_FILE = "config_sentence_transformers.json"
Kind = Task | Literal["multi_vector", "sparse"]
"""What a folder's model is to sentence-transformers: its classes read other fields."""
_MODEL_TYPES: dict[Kind, tuple[str, ...]] = {
    "embed": ("SentenceTransformer",),
    "score": ("CrossEncoder",),
    "multi_vector": ("MultiVectorEncoder", "ColBERT"),  # the second one is PyLate's
    "sparse": ("SparseEncoder",),
}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_POOLINGS: dict[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}


def read_pooling(
    folder: ModelFolder, modules: tuple[Module, ...] | None, architecture: Architecture
) -> PoolingConfig:
    """Pooling and normalisation.

    A bare model (no modules.json) gets what sentence-transformers gives it: the last token for a
    causal ``…ForCausalLM``, else the mean, and no normalisation.

    Raises:
        HotbedError: INVALID_INPUT naming the pooling mode that is not supported, or the width that
            is not the model's.
    """
    if modules is None:
        last = architecture.is_causal and architecture.name.endswith("ForCausalLM")
        return PoolingConfig(pooling="last" if last else "mean", normalize=False)
    chain = {module.kind: module for module in modules}
    if "FlexibleQuantizer" in chain and architecture.quantizer != "pplx":
        raise invalid(
            f"modules.json of {folder.name!r}: {chain['FlexibleQuantizer'].type} is supported for"
            " pplx-embed models only",
            param="modules.json",
        )
    path = folder.sub(chain["Pooling"].path).file("config.json")
    raw = read_json_object(path)
    modes = _pooling_modes(raw)
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        value = modes[0] if len(modes) == 1 else modes
        raise unsupported(path, "pooling_mode", value, tuple(_POOLINGS))
    width = raw.get("embedding_dimension", raw.get("word_embedding_dimension"))
    if width is not None and width != architecture.config.hidden_size:
        raise invalid(
            f"{path}: word_embedding_dimension is {width}, the model's hidden_size"
            f" {architecture.config.hidden_size}",
            param="word_embedding_dimension",
        )
    if raw.get("include_prompt", True) is not True and any(read_prompts(folder).by_name.values()):
        raise invalid(
            f"{path}: include_prompt is false, but the model has prompts; Hotbed always pools over"
            " the prompt's tokens too, which would give other vectors",
            param="include_prompt",
        )
    return PoolingConfig(pooling=_POOLINGS[modes[0]], normalize="Normalize" in chain)


def _pooling_modes(raw: dict[str, Any]) -> list[str]:
    """The modes that are on, from the newer string or list form or the older flags.

    No key at all means mean, as in sentence-transformers.
    """
    mode = raw.get("pooling_mode")
    if isinstance(mode, str):
        return [mode]
    if isinstance(mode, list):
        return [str(m) for m in mode]
    return [name for flag, name in _FLAGS.items() if raw.get(flag)] or ["mean"]


def read_prompts(folder: ModelFolder, kind: Kind = "embed") -> Prompts:
    """Prompts by name, with the default's name.

    Raises:
        HotbedError: INVALID_INPUT if they are not strings, if the default has no prompt, or if the
            folder says that it is a model of another kind.
    """
    if not folder.has(SETTINGS_FILE):
        return Prompts()
    path = folder.path / SETTINGS_FILE
    raw = read_json_object(path)
    known_types = _MODEL_TYPES[kind]
    model_type = raw.get("model_type", known_types[0])
    if model_type not in known_types:
        raise unsupported(path, "model_type", model_type, known_types)
    default = raw.get("default_prompt_name")
    by_name = raw.get("prompts") or {}
    if isinstance(by_name, dict):  # null is no prompt, as sentence-transformers reads it
        by_name = {name: "" if prompt is None else prompt for name, prompt in by_name.items()}
    if kind == "multi_vector":
        by_name = _with_prefixes(raw, by_name)
    try:
        prompts = msgspec.convert({"by_name": by_name, "default_name": default}, Prompts)
    except msgspec.ValidationError as error:
        raise invalid(f"{path}: prompts: {error}", param="prompts") from error
    if default is not None and default not in prompts.by_name:
        known = ", ".join(repr(name) for name in prompts.by_name) or "none"
        raise invalid(
            f"{path}: default_prompt_name is {default!r}; the model's prompts are: {known}",
            param="default_prompt_name",
        )
    return prompts


def _with_prefixes(raw: dict[str, Any], prompts: dict[str, Any]) -> dict[str, Any]:
    """PyLate's prefixes of queries and documents in front of the prompts of these names."""
    made = dict(prompts)
    for field, name in (("query_prefix", "query"), ("document_prefix", "document")):
        prefix = raw.get(field)
        if isinstance(prefix, str) and prefix:
            made[name] = prefix + str(made.get(name) or "").removeprefix(prefix)
    return made
