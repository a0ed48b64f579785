"""config.json, read into the typed record of its family.

Unknown keys are ignored; a known key with a value that would change the vectors and that Hotbed
does not support is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from hotbed.checkpoint.config_bert import read_bert, read_roberta
from hotbed.checkpoint.config_decoder import (
    PPLX_TYPE,
    read_llama,
    read_mistral,
    read_pplx,
    read_qwen2,
    read_qwen3,
)
from hotbed.checkpoint.config_fields import CONFIG_FILE, Architecture, Fields
from hotbed.checkpoint.config_gemma3 import read_gemma3
from hotbed.checkpoint.config_modernbert import read_modernbert
from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported

READERS: dict[str, Callable[[Fields], Architecture]] = {
    "bert": read_bert,
    "roberta": read_roberta,
    "xlm-roberta": read_roberta,
    "camembert": read_roberta,
    "modernbert": read_modernbert,
    "gemma3_text": read_gemma3,
    "llama": read_llama,
    "mistral": read_mistral,
    "qwen2": read_qwen2,
    "qwen3": read_qwen3,
    PPLX_TYPE: read_pplx,
}
"""By ``model_type``."""


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
    reader = READERS.get(model_type) if isinstance(model_type, str) else None
    if reader is None:
        raise unsupported(path, "model_type", model_type, tuple(READERS))
    fields.require("quantization_config", None)
    return reader(fields)
