"""sentence_bert_config.json: how sentence-transformers loads and calls the transformer.

What it says and Hotbed does not do is refused: arguments to the model, its config, its tokenizer or
its calls change vectors as much as the other files' fields do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from hotbed.checkpoint.config_fields import Architecture
from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.sentence_transformers import Kind
from hotbed.core.errors import invalid

FILE_NAME = "sentence_bert_config.json"
FILE_NAMES = (
    FILE_NAME,
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
"""Today's name and those of old versions, in sentence-transformers' order; the first one counts."""
_TOKENIZER_SETTINGS_FILE = "tokenizer_config.json"

_STATES: dict[str, tuple[str, ...]] = {
    "transformer_task": ("feature-extraction",),
    "module_output_name": ("token_embeddings",),
}
_FIELDS: dict[Kind, dict[str, tuple[str, ...]]] = {
    "embed": _STATES,
    "multi_vector": _STATES,
    "sparse": {"transformer_task": ("fill-mask",), "module_output_name": ("token_embeddings",)},
    "score": {
        "transformer_task": ("sequence-classification", "text-generation"),
        "module_output_name": ("scores", "causal_logits"),
    },
}
_OUTPUTS: dict[Kind, str] = {
    "embed": "last_hidden_state",
    "multi_vector": "last_hidden_state",
    "sparse": "logits",
    "score": "logits",
}
# Arguments that change no vector, by the names of today and of before.
# fmt: off
_LOADING = (
    "attn_implementation", "code_revision", "device_map", "dtype", "low_cpu_mem_usage", "revision",
    "torch_dtype", "trust_remote_code", "use_cache", "use_safetensors",
)
_TOKENIZING = (
    "model_max_length", "padding", "padding_side", "revision", "trust_remote_code", "use_fast",
)
# fmt: on
_HARMLESS: dict[str, tuple[str, ...]] = {
    "model_kwargs": _LOADING,
    "model_args": _LOADING,
    "config_kwargs": (*_LOADING, "unpad_inputs", "use_memory_efficient_attention"),
    "config_args": (*_LOADING, "unpad_inputs", "use_memory_efficient_attention"),
    "processor_kwargs": _TOKENIZING,
    "tokenizer_args": _TOKENIZING,
    # A chat template is Hotbed's own where there is one; texts alone are put in none.
    "processing_kwargs": ("chat_template",),
}
# null, as the argument's absence: what it would change has to stand in config.json or
# tokenizer.json.
_SUPPORTED = (None,)


class TransformerSettings(NamedTuple):
    """The file, found and read.

    Attributes:
        path: of the file, there or not.
        values: empty where it is not there.
    """

    path: Path
    values: dict[str, Any]


def read_settings(transformer: ModelFolder) -> TransformerSettings:
    """The file under the first of its names that is there."""
    for name in FILE_NAMES:
        if transformer.has(name):
            path = transformer.path / name
            return TransformerSettings(path, read_json_object(path))
    return TransformerSettings(transformer.path / FILE_NAME, {})


def check_transformer(transformer: ModelFolder, kind: Kind = "embed") -> None:
    """Refuse a Transformer module that yields anything but what the task stands on, or that is
    loaded or called with arguments that change vectors.

    Args:
        transformer: the folder of the Transformer module.
        kind: last hidden states for ``embed`` and ``multi_vector``, logits for the others.

    Raises:
        HotbedError: INVALID_INPUT naming the field, e.g. the fill-mask task of SPLADE.
    """
    settings = read_settings(transformer)
    for field, supported in _FIELDS[kind].items():
        if settings.values.get(field) not in (None, *supported):
            raise unsupported(settings.path, field, settings.values[field], supported)
    _check_modalities(settings, kind)
    for field, harmless in _HARMLESS.items():
        given = settings.values.get(field) or {}
        if not isinstance(given, dict):
            raise invalid(f"{settings.path}: {field} must be an object", param=field)
        for name, value in given.items():
            if name not in harmless and value not in (None, {}):
                raise unsupported(settings.path, f"{field}.{name}", value, _SUPPORTED)


def _check_modalities(settings: TransformerSettings, kind: Kind) -> None:
    """Texts must be an input of their own, and the model's usual output what is read.

    A score from a language model is the exception: there a pair is a message of its chat template.
    """
    modalities = settings.values.get("modality_config")
    if modalities is None or (kind == "score" and "text" not in modalities):
        return
    if not isinstance(modalities, dict) or not isinstance(modalities.get("text"), dict):
        raise unsupported(settings.path, "modality_config", modalities, ("text",))
    expected = {"method": "forward", "method_output_name": _OUTPUTS[kind]}
    for field, value in expected.items():
        if modalities["text"].get(field, value) != value:
            name = f"modality_config.text.{field}"
            raise unsupported(settings.path, name, modalities["text"][field], (value,))


def lower_cases(transformer: ModelFolder) -> bool:
    """Whether texts are lower-cased, whatever tokenizer.json does (``do_lower_case``).

    False leaves it to tokenizer.json: an uncased tokenizer stays one.
    """
    settings = read_settings(transformer)
    value = settings.values.get("do_lower_case")
    if value not in (None, True, False):
        raise unsupported(settings.path, "do_lower_case", value, (False, True))
    return value is True


def read_max_tokens(transformer: ModelFolder, architecture: Architecture) -> int:
    """Longest sequence, special tokens included.

    It is max_seq_length, else the tokenizer's model_max_length, which is 1e30 where nobody set it;
    and never more than the model has positions.

    Args:
        transformer: the folder of the Transformer module.
        architecture: for its positions.

    Raises:
        HotbedError: INVALID_INPUT naming a limit that is no number or below 1.
    """
    positions = architecture.config.longest_sequence
    settings = read_settings(transformer)
    stated = [(settings.path, "max_seq_length", settings.values.get("max_seq_length"))]
    for field in ("processor_kwargs", "tokenizer_args"):
        name = f"{field}.model_max_length"
        value = (settings.values.get(field) or {}).get("model_max_length")
        stated.insert(0, (settings.path, name, value))
    if transformer.has(_TOKENIZER_SETTINGS_FILE):
        path = transformer.path / _TOKENIZER_SETTINGS_FILE
        stated.append((path, "model_max_length", read_json_object(path).get("model_max_length")))
    limits = []
    for path, field, value in stated:
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
            raise invalid(f"{path}: {field} is {value!r}; it must be at least 1", param=field)
        limits.append(int(min(value, positions)))
    return limits[0] if limits else positions
