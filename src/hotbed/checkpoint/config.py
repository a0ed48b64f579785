"""config.json, read into the typed record of its family.

Unknown keys are ignored; a known key with a value that would change the vectors and that Hotbed
does not support is refused.
"""

from __future__ import annotations

from hotbed.checkpoint import (
    config_bert,
    config_deberta,
    config_decoder,
    config_gemma3,
    config_jina_bert,
    config_modernbert,
    config_rotary_bert,
    config_t5,
)
from hotbed.checkpoint.config_decoder import PPLX_CODE
from hotbed.checkpoint.config_fields import CONFIG_FILE, Architecture, Fields, ModelType
from hotbed.checkpoint.config_jina_bert import JINA_CLASSES
from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.core.errors import invalid

MODEL_TYPES: dict[str, ModelType] = (
    config_bert.TYPES
    | config_jina_bert.TYPES
    | config_deberta.TYPES
    | config_modernbert.TYPES
    | config_rotary_bert.TYPES
    | config_t5.TYPES
    | config_gemma3.TYPES
    | config_decoder.TYPES
)
"""By ``model_type``."""
_JINA_ARCHITECTURES = tuple([name] for name in JINA_CLASSES)


def read_config(folder: ModelFolder) -> Architecture:
    """Read config.json.

    Args:
        folder: where the transformer's own files lie.

    Raises:
        HotbedError: INVALID_INPUT naming the field, its value and what is supported.
    """
    path = folder.file(CONFIG_FILE)
    fields = Fields(path, read_json_object(path))
    model_type = fields.values.get("model_type")
    if model_type == "bert" and fields.values.get("architectures") in _JINA_ARCHITECTURES:
        model_type = "jina_bert"  # BERT's type is what its files say
    known = MODEL_TYPES.get(model_type) if isinstance(model_type, str) else None
    if known is None:
        raise unsupported(path, "model_type", model_type, tuple(MODEL_TYPES))
    fields.require("quantization_config", None)
    name = fields.class_name(known.classes)
    _check_code(fields, name, known.classes)
    return known.read(fields, name)


def _check_code(fields: Fields, name: str, classes: tuple[str, ...]) -> None:
    """Refuse code of the folder's own in place of the classes that Hotbed knows.

    It may differ in anything, such as the mask of a bidirectional Qwen2; for the classes' own names
    it is what they were before `transformers` had them.
    """
    auto_map = fields.values.get("auto_map")
    if not isinstance(auto_map, dict):
        return
    is_classifier = name.endswith("ForSequenceClassification")
    auto_class = "AutoModelForSequenceClassification" if is_classifier else "AutoModel"
    code = auto_map.get(auto_class)
    if code is not None and str(code).rpartition(".")[2] not in (*classes, *PPLX_CODE):
        raise invalid(
            f"{fields.path}: auto_map.{auto_class} is {code!r}, code of the folder's own, which"
            f" Hotbed does not run and does not know; supported: {', '.join(classes)}. If its"
            f" layers are {name}'s as transformers has them, take auto_map out of config.json",
            param=f"auto_map.{auto_class}",
        )
