"""config.json of each family, with the values of published models, and a reader of changed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hotbed.checkpoint.config import read_config
from hotbed.checkpoint.config_fields import Architecture
from hotbed.checkpoint.folder import ModelFolder

BERT: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
}
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000,
}
PPLX = QWEN3 | {
    "architectures": ["PPLXQwen3Model"],
    "model_type": "bidirectional_pplx_qwen3",
    "use_bidirectional_attention": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
XLMR = BERT | {
    "architectures": ["XLMRobertaModel"],
    "model_type": "xlm-roberta",
    "max_position_embeddings": 514,
    "pad_token_id": 1,
    "type_vocab_size": 1,
}
MODERNBERT: dict[str, Any] = {
    "architectures": ["ModernBertForMaskedLM"],
    "model_type": "modernbert",
    "vocab_size": 50368,
    "hidden_size": 768,
    "num_hidden_layers": 5,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
    "local_attention": 128,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
}
# As e5-mistral-7b-instruct, gte-Qwen2 and a small Llama state them.
MISTRAL = QWEN3 | {
    "architectures": ["MistralModel"],
    "model_type": "mistral",
    "hidden_size": 4096,
    "sliding_window": 4096,
}
MISTRAL.pop("head_dim")
QWEN2 = MISTRAL | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
EUROBERT = MISTRAL | {"architectures": ["EuroBertForMaskedLM"], "model_type": "eurobert"}
LLAMA = MISTRAL | {"architectures": ["LlamaModel"], "model_type": "llama"}
# As EmbeddingGemma states them.
GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3TextModel"],
    "model_type": "gemma3_text",
    "vocab_size": 262144,
    "hidden_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "intermediate_size": 1152,
    "max_position_embeddings": 2048,
    "sliding_window": 512,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "query_pre_attn_scalar": 256,
    "use_bidirectional_attention": True,
    "rope_scaling": None,
}
# As nomic-embed-text-v1.5 states them, with GPT-2's names.
NOMIC: dict[str, Any] = {
    "architectures": ["NomicBertModel"],
    "model_type": "nomic_bert",
    "activation_function": "swiglu",
    "causal": False,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048,
    "n_embd": 768,
    "n_head": 12,
    "n_inner": 3072,
    "n_layer": 12,
    "n_positions": 8192,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "type_vocab_size": 2,
    "vocab_size": 30528,
}
GTE = BERT | {
    "architectures": ["GteModel"],
    "model_type": "gte",
    "hidden_act": "gelu",
    "position_embedding_type": "rope",
    "rope_scaling": None,
    "rope_theta": 160000,
    "max_position_embeddings": 8192,
    "type_vocab_size": 1,
}
DEBERTA = BERT | {
    "architectures": ["DebertaV2ForSequenceClassification"],
    "model_type": "deberta-v2",
    "max_position_embeddings": 512,
    "max_relative_positions": -1,
    "norm_rel_ebd": "layer_norm",
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "position_buckets": 256,
    "relative_attention": True,
    "share_att_key": True,
    "type_vocab_size": 0,
}
JINA = BERT | {
    "architectures": ["JinaBertForMaskedLM"],
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
    "max_position_embeddings": 8192,
    "type_vocab_size": 2,
    "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
}
ELECTRA = BERT | {
    "architectures": ["ElectraForSequenceClassification"],
    "model_type": "electra",
    "embedding_size": 384,
}
T5: dict[str, Any] = {
    "architectures": ["T5EncoderModel"],
    "model_type": "t5",
    "vocab_size": 32128,
    "d_model": 768,
    "d_kv": 64,
    "d_ff": 3072,
    "num_layers": 12,
    "num_heads": 12,
    "n_positions": 512,
    "feed_forward_proj": "relu",
    "layer_norm_epsilon": 1e-06,
    "relative_attention_num_buckets": 32,
}
MPNET = BERT | {
    "architectures": ["MPNetModel"],
    "model_type": "mpnet",
    "max_position_embeddings": 514,
    "relative_attention_num_buckets": 32,
}
DISTILBERT: dict[str, Any] = {
    "architectures": ["DistilBertModel"],
    "model_type": "distilbert",
    "activation": "gelu",
    "dim": 768,
    "hidden_dim": 3072,
    "max_position_embeddings": 512,
    "n_heads": 12,
    "n_layers": 6,
    "sinusoidal_pos_embds": False,
    "vocab_size": 30522,
}
# As Llama 3.1 and 3.2 state it.
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
REMOVED = object()


NEMOTRON = LLAMA | {
    "architectures": ["LlamaBidirectionalModel"],
    "model_type": "llama_bidirec",
    "pooling": "avg",
}


def read(tmp_path: Path, base: dict[str, Any], **changes: object) -> Architecture:
    values = {k: v for k, v in (base | changes).items() if v is not REMOVED}
    (tmp_path / "config.json").write_text(json.dumps(values))
    return read_config(ModelFolder(name="m", source="folder", path=tmp_path))
