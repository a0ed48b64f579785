"""The checkpoints of test_parity.py: every type of models in the forms that people serve."""

from __future__ import annotations

from typing import Any

from tests.support.checkpoints import make_bert, make_qwen3
from tests.support.families import make_family

BPE = {"tokenizer": "bpe"}
# Of 48 tokens in training, to 96 and more; with the factors that Llama 3.1 and Qwen3 state.
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 48,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 48}
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "bert mean": (make_bert, {"pooling": "mean"}),
    "bert cls": (make_bert, {"pooling": "cls"}),
    "bert gelu_new": (make_bert, {"hidden_act": "gelu_new"}),
    "bert relu": (make_bert, {"hidden_act": "relu"}),
    "qwen3 causal last": (make_qwen3, {"causal": True}),
    "qwen3 bidirectional mean": (make_qwen3, {"causal": False}),
    "qwen3 head dim 128": (make_qwen3, {"head_dim": 128, "layers": 1}),
    "bert to the last position": (make_family, {"config": "bert"}),
    "bert. prefix": (make_family, {"config": "bert", "prefix": "bert.", "pooling": "cls"}),
    "electra": (make_family, {"config": "electra", "pooling": "cls"}),
    "electra prefix": (make_family, {"config": "electra", "prefix": "electra."}),
    "roberta": (make_family, {"config": "roberta", "prefix": "roberta."}),
    "roberta without prefix": (make_family, {"config": "roberta", "pooling": "cls"}),
    "xlm-roberta prefix": (make_family, {"config": "xlm-roberta", "prefix": "roberta."}),
    "xlm-roberta cls": (make_family, {"config": "xlm-roberta", "pooling": "cls"}),
    "xlm-roberta pad id 3": (make_family, {"config": "xlm-roberta", "pad_token_id": 3}),
    "camembert": (make_family, {"config": "camembert", "prefix": "roberta."}),
    "camembert without prefix": (make_family, {"config": "camembert"}),
    "distilbert": (make_family, {"config": "distilbert"}),
    "distilbert prefix": (
        make_family,
        {"config": "distilbert", "prefix": "distilbert.", "pooling": "cls"},
    ),
    "mpnet": (make_family, {"config": "mpnet"}),
    "mpnet prefix": (make_family, {"config": "mpnet", "prefix": "mpnet.", "pooling": "cls"}),
    "deberta": (make_family, {"config": "deberta-v2", "pooling": "cls"}),
    "deberta prefix": (make_family, {"config": "deberta-v2", "prefix": "deberta."}),
    "deberta of real buckets": (
        make_family,
        {"config": "deberta-v2", "max_position_embeddings": 512, "position_buckets": 256},
    ),
    "jina_bert": (make_family, {"config": "jina_bert"}),
    "jina_bert prefix, 8 heads": (
        make_family,
        {"config": "jina_bert", "num_attention_heads": 8, "prefix": "bert.", "pooling": "cls"},
    ),
    "modernbert": (make_family, {"config": "modernbert", "prefix": "model."}),
    "modernbert cls": (make_family, {"config": "modernbert", "pooling": "cls"}),
    "t5": (make_family, {"config": "t5"}),
    "t5 gated, as 1.1": (make_family, {"config": "t5", "feed_forward_proj": "gated-gelu"}),
    "t5 prefix, more heads than are wide": (
        make_family,
        {"config": "t5", "num_heads": 6, "prefix": "transformer.", "pooling": "cls"},
    ),
    "qwen2 causal last": (make_family, BPE | {"config": "qwen2", "pooling": "last"}),
    "qwen2 bidirectional, as gte-Qwen2": (
        make_family,
        BPE | {"config": "qwen2", "is_causal": False, "pooling": "last", "prefix": "model."},
    ),
    "llama last": (make_family, BPE | {"config": "llama", "pooling": "last", "prefix": "model."}),
    "llama bidirectional mean": (make_family, BPE | {"config": "llama", "is_causal": False}),
    "llama without groups, head dim 128": (
        make_family,
        BPE | {"config": "llama", "num_key_value_heads": 4, "head_dim": 128},
    ),
    "llama of both sides, as llama-nemotron-embed": (
        make_family,
        BPE | {"config": "llama_bidirec"},
    ),
    "eurobert": (make_family, BPE | {"config": "eurobert"}),
    "eurobert prefix": (
        make_family,
        BPE | {"config": "eurobert", "prefix": "model.", "pooling": "cls"},
    ),
    "mistral last, as e5-mistral": (
        make_family,
        BPE | {"config": "mistral", "pooling": "last", "tokenizer": "bpe with end"},
    ),
    "mistral mean": (make_family, BPE | {"config": "mistral", "prefix": "model."}),
    "qwen3 sharded": (make_family, BPE | {"config": "qwen3", "pooling": "last"}),
    "qwen3 prefix, sharded": (
        make_family,
        BPE | {"config": "qwen3", "is_causal": False, "prefix": "model."},
    ),
    "mistral without a window": (
        make_family,
        BPE | {"config": "mistral", "sliding_window": None, "pooling": "last"},
    ),
    "llama linear": (
        make_family,
        BPE | {"config": "llama", "rope_scaling": {"type": "linear", "factor": 4.0}},
    ),
    "llama dynamic": (
        make_family,
        BPE
        | {
            "config": "llama",
            "is_causal": False,
            "max_position_embeddings": 40,
            "rope_scaling": {"type": "dynamic", "factor": 2.5},
        },
    ),
    "llama 3.1": (make_family, BPE | {"config": "llama", "rope_scaling": LLAMA3}),
    "llama 3.1 as transformers 5 writes it": (
        make_family,
        BPE
        | {
            "config": "llama",
            "rope_theta": None,
            "rope_parameters": LLAMA3 | {"rope_theta": 5e5},
        },
    ),
    "qwen2 yarn": (
        make_family,
        BPE | {"config": "qwen2", "pooling": "last", "rope_scaling": YARN | {"truncate": False}},
    ),
    "qwen3 yarn": (
        make_family,
        BPE | {"config": "qwen3", "pooling": "last", "rope_scaling": YARN},
    ),
    "mistral yarn with everything stated": (
        make_family,
        BPE
        | {
            "config": "mistral",
            "sliding_window": None,
            "rope_scaling": YARN | {"beta_fast": 8.0, "beta_slow": 2.0, "attention_factor": 0.8},
        },
    ),
    "llama yarn with mscale": (
        make_family,
        BPE
        | {
            "config": "llama",
            "rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 1.2, "factor": 2.0},
        },
    ),
    "nomic": (make_family, {"config": "nomic_bert"}),
    "nomic dynamic": (
        make_family,
        {
            "config": "nomic_bert",
            "max_position_embeddings": 48,
            "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000.0},
        },
    ),
    "nomic prefix": (
        make_family,
        {"config": "nomic_bert", "prefix": "nomic_bert.", "pooling": "cls"},
    ),
    "gte": (make_family, {"config": "gte", "pooling": "cls"}),
    "gte prefix": (make_family, {"config": "gte", "prefix": "new."}),
    "gte's first type, as gte-base-en-v1.5": (make_family, {"config": "new", "pooling": "cls"}),
    "gte's first type with token types, as gte-large-en-v1.5": (
        make_family,
        {
            "config": "new",
            "type_vocab_size": 2,
            "rope_theta": 160000,
            "prefix": "new.",
            "pooling": "cls",
        },
    ),
    "gte's first type, as gte-multilingual-base": (
        make_family,
        {
            "config": "new",
            "type_vocab_size": 1,
            "rope_theta": 20000,
            "rope_scaling": {"type": "ntk", "factor": 8.0},
            "pooling": "cls",
        },
    ),
    "gte linear": (
        make_family,
        {
            "config": "gte",
            "rope_parameters": {"rope_type": "linear", "factor": 1.5, "rope_theta": 5e5},
        },
    ),
    "gemma3 linear, as from 4B on": (
        make_family,
        BPE | {"config": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    "gemma3 bidirectional, as EmbeddingGemma": (make_family, BPE | {"config": "gemma3_text"}),
    "gemma3 causal": (
        make_family,
        BPE
        | {
            "config": "gemma3_text",
            "use_bidirectional_attention": False,
            "pooling": "last",
            "prefix": "model.",
        },
    ),
    "gemma3 head dim 256": (
        make_family,
        BPE | {"config": "gemma3_text", "head_dim": 256, "query_pre_attn_scalar": 256},
    ),
}
# Tokens a token sees on each side, in families with a window: lengths around it are tested.
WINDOWS = {
    "modernbert": 16,
    "modernbert cls": 16,
    "mistral last, as e5-mistral": 15,
    "mistral mean": 15,
    "gemma3 bidirectional, as EmbeddingGemma": 16,
    "gemma3 causal": 31,
    "gemma3 linear, as from 4B on": 16,
}
# Tokens from which on a text has frequencies of its own: lengths around it are tested.
TRAINED = {"llama dynamic": 40, "nomic dynamic": 48}


# A field of config.json, and a value for it that Hotbed must not have read: it has to show.
WRONG: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("xlm-roberta", {}, {"pad_token_id": 2}),
    ("modernbert", {}, {"local_attention": 30}),
    ("modernbert", {}, {"local_attention": 34}),
    ("modernbert", {}, {"global_attn_every_n_layers": 2}),
    ("modernbert", {}, {"local_rope_theta": 9000.0}),
    ("modernbert", {}, {"global_rope_theta": 150000.0}),
    ("deberta-v2", {}, {"max_position_embeddings": 128}),
    ("deberta-v2", {}, {"layer_norm_eps": 1e-2}),
    ("jina_bert", {}, {"num_attention_heads": 6}),
    ("t5", {}, {"layer_norm_epsilon": 0.1}),
    ("nomic_bert", {}, {"rope_parameters": {"rope_theta": 900.0}}),
    ("gte", {}, {"rope_parameters": {"rope_theta": 150000.0}}),
    ("mistral", BPE, {"sliding_window": 15}),
    ("mistral", BPE, {"sliding_window": 17}),
    ("llama", BPE, {"rope_theta": 9000.0}),
    ("gemma3_text", BPE, {"sliding_window": 30}),
    ("gemma3_text", BPE, {"sliding_window": 34}),
    ("gemma3_text", BPE, {"rope_local_base_freq": 9000.0}),
    ("gemma3_text", BPE, {"sliding_window_pattern": 2}),
    ("gemma3_text", BPE, {"use_bidirectional_attention": False}),
    ("llama", BPE, {"is_causal": False}),
    ("new", {}, {"rope_scaling": None}),
    ("new", {}, {"rope_scaling": {"type": "ntk", "factor": 1.8}}),
    ("llama", BPE | {"rope_scaling": LLAMA3}, {"rope_scaling": None}),
    ("llama", BPE | {"rope_scaling": LLAMA3}, {"rope_scaling": LLAMA3 | {"factor": 7.0}}),
    (
        "llama",
        BPE | {"rope_scaling": LLAMA3},
        {"rope_scaling": LLAMA3 | {"high_freq_factor": 3.0}},
    ),
    ("llama", BPE | {"rope_scaling": YARN}, {"rope_scaling": YARN | {"attention_factor": 1.0}}),
    ("llama", BPE | {"rope_scaling": YARN}, {"rope_scaling": YARN | {"beta_slow": 2.0}}),
    ("llama", BPE | {"rope_scaling": YARN}, {"rope_scaling": YARN | {"truncate": False}}),
    ("gemma3_text", BPE, {"rope_scaling": {"rope_type": "linear", "factor": 1.1}}),
    (
        "nomic_bert",
        {
            "max_position_embeddings": 48,
            "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000.0},
        },
        {"max_position_embeddings": 96, "rope_parameters": {"rope_theta": 1000.0}},
    ),
    ("qwen2", BPE | {"is_causal": False}, {"is_causal": True}),
]
