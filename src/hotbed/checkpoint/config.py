"""config.json, read into the typed record of its family.

Unknown keys are ignored; a known key with a value that would change the vectors and that Hotbed
does not support is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hotbed.checkpoint.config_bert import (
    read_bert,
    read_distilbert,
    read_electra,
    read_mpnet,
    read_roberta,
)
from hotbed.checkpoint.config_deberta import read_deberta
from hotbed.checkpoint.config_decoder import (
    PPLX_CLASS,
    PPLX_CODE,
    read_eurobert,
    read_llama,
    read_llama_bidirec,
    read_mistral,
    read_pplx,
    read_qwen2,
    read_qwen3,
)
from hotbed.checkpoint.config_fields import CONFIG_FILE, Architecture, Fields
from hotbed.checkpoint.config_gemma3 import read_gemma3
from hotbed.checkpoint.config_jina_bert import JINA_CLASSES, read_jina_bert
from hotbed.checkpoint.config_modernbert import read_modernbert
from hotbed.checkpoint.config_rotary_bert import read_gte, read_nomic_bert
from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.records import FamilyName
from hotbed.core.errors import invalid

_JINA_ARCHITECTURES = tuple([name] for name in JINA_CLASSES)
_ADAPTER_FILE = "adapter_config.json"


class ModelType(NamedTuple):
    """How one ``model_type`` is read.

    Attributes:
        family: what the reader makes of it.
        classes: that ``architectures`` may name.
        read: from the keys and ``architectures[0]``.
    """

    family: FamilyName
    classes: tuple[str, ...]
    read: Callable[[Fields, str], Architecture]


_GTE_CLASSES = ("GteModel", "GteForMaskedLM", "GteForSequenceClassification")
_NEW_CLASSES = ("NewModel", "NewForMaskedLM", "NewForSequenceClassification")  # of GTE's own code
MODEL_TYPES: dict[str, ModelType] = {
    "bert": ModelType(
        "bert",
        ("BertModel", "BertForMaskedLM", "BertForSequenceClassification", "Contriever"),
        read_bert,
    ),
    "jina_bert": ModelType("jina_bert", JINA_CLASSES, read_jina_bert),
    "electra": ModelType(
        "bert", ("ElectraModel", "ElectraForSequenceClassification"), read_electra
    ),
    "roberta": ModelType(
        "bert",
        ("RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification"),
        read_roberta,
    ),
    "xlm-roberta": ModelType(
        "bert",
        ("XLMRobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"),
        read_roberta,
    ),
    "camembert": ModelType(
        "bert",
        ("CamembertModel", "CamembertForMaskedLM", "CamembertForSequenceClassification"),
        read_roberta,
    ),
    "distilbert": ModelType(
        "bert",
        ("DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification"),
        read_distilbert,
    ),
    "mpnet": ModelType(
        "mpnet", ("MPNetModel", "MPNetForMaskedLM", "MPNetForSequenceClassification"), read_mpnet
    ),
    "deberta-v2": ModelType(
        "deberta",
        ("DebertaV2Model", "DebertaV2ForMaskedLM", "DebertaV2ForSequenceClassification"),
        read_deberta,
    ),
    "modernbert": ModelType(
        "modernbert",
        ("ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"),
        read_modernbert,
    ),
    "nomic_bert": ModelType(
        "rotary_bert", ("NomicBertModel", "NomicBertForMaskedLM"), read_nomic_bert
    ),
    "gte": ModelType("rotary_bert", (*_GTE_CLASSES, *_NEW_CLASSES), read_gte),
    "new": ModelType("rotary_bert", _NEW_CLASSES, read_gte),
    "gemma3_text": ModelType("gemma3", ("Gemma3TextModel", "Gemma3ForCausalLM"), read_gemma3),
    "llama": ModelType(
        "decoder", ("LlamaModel", "LlamaForCausalLM", "LlamaForSequenceClassification"), read_llama
    ),
    "llama_bidirec": ModelType("decoder", ("LlamaBidirectionalModel",), read_llama_bidirec),
    "eurobert": ModelType("decoder", ("EuroBertModel", "EuroBertForMaskedLM"), read_eurobert),
    "mistral": ModelType(
        "decoder",
        ("MistralModel", "MistralForCausalLM", "MistralForSequenceClassification"),
        read_mistral,
    ),
    "qwen2": ModelType(
        "decoder", ("Qwen2Model", "Qwen2ForCausalLM", "Qwen2ForSequenceClassification"), read_qwen2
    ),
    "qwen3": ModelType(
        "decoder",
        ("Qwen3Model", "Qwen3ForCausalLM", "Qwen3ForSequenceClassification", PPLX_CLASS),
        read_qwen3,
    ),
    "bidirectional_pplx_qwen3": ModelType("decoder", (PPLX_CLASS,), read_pplx),
}
"""By ``model_type``; the first class is meant where config.json names none."""


def read_config(folder: ModelFolder) -> Architecture:
    """Read config.json.

    Args:
        folder: where the transformer's own files lie.

    Raises:
        HotbedError: INVALID_INPUT naming the field, its value and what is supported.
    """
    if folder.has(_ADAPTER_FILE) and not folder.has(CONFIG_FILE):
        raise folder.missing(
            CONFIG_FILE,
            f"there is {_ADAPTER_FILE}, an adapter (LoRA) without its base model. Merge the two and"
            " save the whole: peft's merge_and_unload(), then save_pretrained(folder)",
        )
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
