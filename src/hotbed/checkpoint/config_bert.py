"""config.json of BERT and its relatives: ELECTRA, RoBERTa, XLM-R, CamemBERT, DistilBERT, MPNet."""

from __future__ import annotations

from hotbed.checkpoint.config_fields import Architecture, Fields, ModelType
from hotbed.checkpoint.records import BertConfig, MpnetConfig
from hotbed.core.errors import invalid

BERT_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
_DISTILBERT_NAMES = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
_DEFAULT_ROBERTA_PAD_ID = 1  # transformers' RobertaConfig


def read_bert(fields: Fields, name: str) -> Architecture:
    """BERT: positions count from 0."""
    return _read(fields, name, position_offset=0)


def read_electra(fields: Fields, name: str) -> Architecture:
    """ELECTRA's discriminator: BERT, where the embedding is as wide as the states (base, large)."""
    fields.require("embedding_size", fields.count("hidden_size"))
    if fields.values.get("embedding_size") is None:  # transformers' default is 128
        raise invalid(f"{fields.path}: embedding_size is missing", param="embedding_size")
    return _read(fields, name, position_offset=0)


def read_roberta(fields: Fields, name: str) -> Architecture:
    """RoBERTa's kind: BERT whose positions start behind the pad token's id.

    fairseq gave pad tokens a row of the position table as well, the one of their id, so a table of
    514 rows with pad id 1 serves 512 tokens.
    """
    pad_id = fields.values.get("pad_token_id", _DEFAULT_ROBERTA_PAD_ID)
    if not isinstance(pad_id, int) or pad_id < 0:
        raise invalid(
            f"{fields.path}: pad_token_id is {pad_id!r}; it must be a token id, since positions"
            " start behind it",
            param="pad_token_id",
        )
    # The type of jina-reranker-v2 is XLM-R's, the names of its tensors are its own code's.
    naming = "flash" if _has_code(fields) else "bert"
    return _read(fields, name, position_offset=pad_id + 1, naming=naming)


def _has_code(fields: Fields) -> bool:
    auto_map = fields.values.get("auto_map")
    names = ("AutoModel", "AutoModelForSequenceClassification")
    return isinstance(auto_map, dict) and any(name in auto_map for name in names)


def read_distilbert(fields: Fields, name: str) -> Architecture:
    """DistilBERT: BERT with other names, and without token types."""
    fields.require("sinusoidal_pos_embds", False, True)  # only how the table was made at first
    fields.require("activation", *BERT_ACTIVATIONS)
    values = fields.values
    renamed = {new: values[old] for new, old in _DISTILBERT_NAMES.items() if old in values}
    config = Fields(fields.path, values | renamed).convert(
        BertConfig, type_vocab_size=1, naming="distilbert"
    )
    fields.divisible("dim", "n_heads")
    return Architecture(family="bert", name=name, config=config)


def read_mpnet(fields: Fields, name: str) -> Architecture:
    """MPNet: BERT with a bias for distances."""
    fields.require("hidden_act", "gelu")
    config = fields.convert(MpnetConfig)
    fields.divisible("hidden_size", "num_attention_heads")
    return Architecture(family="mpnet", name=name, config=config)


def _read(fields: Fields, name: str, *, position_offset: int, naming: str = "bert") -> Architecture:
    fields.require("position_embedding_type", "absolute")
    fields.require("hidden_act", *BERT_ACTIVATIONS)
    fields.require("is_decoder", False)
    fields.require("add_cross_attention", False)
    config = fields.convert(BertConfig, position_offset=position_offset, naming=naming)
    fields.divisible("hidden_size", "num_attention_heads")
    if config.longest_sequence < 1:
        raise invalid(
            f"{fields.path}: max_position_embeddings ({config.max_position_embeddings}) leaves no"
            f" position behind pad_token_id ({position_offset - 1})",
            param="max_position_embeddings",
        )
    return Architecture(family="bert", name=name, config=config)


TYPES: dict[str, ModelType] = {
    "bert": ModelType(
        "bert",
        read_bert,
        (
            "BertModel",
            "BertForMaskedLM",
            "BertForSequenceClassification",
            "Contriever",
        ),
        example=(
            "all-MiniLM, bge, e5, gte (base, large), LaBSE, Contriever; ms-marco cross-encoders"
        ),
        heads={"BertForSequenceClassification": "bert"},
    ),
    "electra": ModelType(
        "bert",
        read_electra,
        (
            "ElectraModel",
            "ElectraForSequenceClassification",
        ),
        example="base and large: ms-marco-electra-base",
        heads={"ElectraForSequenceClassification": "electra"},
    ),
    "roberta": ModelType(
        "bert",
        read_roberta,
        (
            "RobertaModel",
            "RobertaForMaskedLM",
            "RobertaForSequenceClassification",
        ),
        example="all-distilroberta, all-roberta-large",
        heads={"RobertaForSequenceClassification": "roberta"},
    ),
    "xlm-roberta": ModelType(
        "bert",
        read_roberta,
        (
            "XLMRobertaModel",
            "XLMRobertaForMaskedLM",
            "XLMRobertaForSequenceClassification",
        ),
        example=(
            "bge-m3, multilingual-e5, arctic-embed-l-v2.0; bge-reranker-v2-m3, jina-reranker-v2"
        ),
        heads={"XLMRobertaForSequenceClassification": "roberta"},
    ),
    "camembert": ModelType(
        "bert",
        read_roberta,
        (
            "CamembertModel",
            "CamembertForMaskedLM",
            "CamembertForSequenceClassification",
        ),
        example="sentence-camembert",
        heads={"CamembertForSequenceClassification": "roberta"},
    ),
    "distilbert": ModelType(
        "bert",
        read_distilbert,
        (
            "DistilBertModel",
            "DistilBertForMaskedLM",
            "DistilBertForSequenceClassification",
        ),
        example="msmarco-distilbert, multi-qa-distilbert, distiluse",
        heads={"DistilBertForSequenceClassification": "distilbert"},
    ),
    "mpnet": ModelType(
        "mpnet",
        read_mpnet,
        (
            "MPNetModel",
            "MPNetForMaskedLM",
            "MPNetForSequenceClassification",
        ),
        example="all-mpnet-base-v2, multi-qa-mpnet, paraphrase-mpnet",
        heads={"MPNetForSequenceClassification": "roberta"},
    ),
}
"""By ``model_type``."""
