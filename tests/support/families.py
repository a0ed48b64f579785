"""A tiny seeded checkpoint of any family that `transformers` knows, from the text of its config.

Names and shapes of the tensors are those of the model class in `transformers`, so the files are
what a checkpoint of that family holds. Needs torch, unlike `tests.support.checkpoints`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from hotbed.checkpoint.safetensors_index import read_header
from tests.support import jina_bert
from tests.support.checkpoints import (
    DenseSpec,
    PoolingName,
    write_json,
    write_sentence_transformers,
    write_tensors,
)
from tests.support.tiny_tokenizers import END_OF_TEXT, byte_level_bpe, wordpiece
from tests.support.tiny_weights import Tensors, random_tensors

# Heads of 32 and 64 as in MiniLM and the base models; three layers, so that one that is skipped or
# run twice shows.
_ENCODER = {
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 192,
}
_ROBERTA = _ENCODER | {
    "max_position_embeddings": 98,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
# Heads of 64 as in small Llamas, two of them a key/value head.
_DECODER = {
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 192,
    "max_position_embeddings": 96,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": _ENCODER | {"model_type": "bert", "max_position_embeddings": 96},
    "electra": _ENCODER
    | {"model_type": "electra", "embedding_size": 128, "max_position_embeddings": 96},
    "roberta": _ROBERTA | {"model_type": "roberta"},
    "xlm-roberta": _ROBERTA | {"model_type": "xlm-roberta"},
    "camembert": _ROBERTA | {"model_type": "camembert"},
    "mpnet": _ENCODER | {"model_type": "mpnet", "max_position_embeddings": 162},
    # As mxbai-rerank v1 and nli-deberta-v3 have it.
    "deberta-v2": _ENCODER
    | {
        "model_type": "deberta-v2",
        "max_position_embeddings": 96,
        "layer_norm_eps": 1e-7,
        "relative_attention": True,
        "position_buckets": 32,
        "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
        "pad_token_id": 0,
        "pooler_hidden_act": "gelu",
        "pooler_dropout": 0,
    },
    # As jina-embeddings-v2-small has it, in files that `transformers` cannot load; twelve heads as
    # in base, whose slopes are of no power of two.
    "jina_bert": _ENCODER
    | {
        "model_type": "bert",
        "architectures": [jina_bert.CLASS_NAME],
        "hidden_size": 192,
        "num_attention_heads": 12,
        "max_position_embeddings": 96,
        "type_vocab_size": 2,
        "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
        "emb_pooler": "mean",
        "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
    },
    "distilbert": {
        "model_type": "distilbert",
        "dim": 128,
        "n_layers": 3,
        "n_heads": 2,
        "hidden_dim": 192,
        "max_position_embeddings": 96,
        "activation": "gelu",
        "sinusoidal_pos_embds": False,
    },
    # As old files have it; newer ones have rope_parameters and layer_types.
    "modernbert": _ENCODER
    | {
        "model_type": "modernbert",
        "num_hidden_layers": 4,
        "max_position_embeddings": 96,
        "local_attention": 32,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "pad_token_id": 0,
    },
    "nomic_bert": _ENCODER
    | {
        "model_type": "nomic_bert",
        "max_position_embeddings": 96,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    },
    "gte": _ENCODER
    | {
        "model_type": "gte",
        "max_position_embeddings": 96,
        "type_vocab_size": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 160000.0},
    },
    # As gte-base-en-v1.5 has it, in files that `transformers` cannot load: see `as_known`.
    "new": _ENCODER
    | {
        "model_type": "new",
        "architectures": ["NewModel"],
        "max_position_embeddings": 96,
        "type_vocab_size": 0,
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "logn_attention_scale": False,
        "pack_qkv": True,
        "rope_scaling": {"type": "ntk", "factor": 2.0},
        "rope_theta": 500000,
    },
    "gemma3_text": _DECODER
    | {
        "model_type": "gemma3_text",
        "num_hidden_layers": 4,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 64,
        "sliding_window": 32,
        "sliding_window_pattern": 3,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "use_bidirectional_attention": True,
    },
    "t5": {
        "model_type": "t5",
        "architectures": ["T5EncoderModel"],
        "d_model": 128,
        "d_kv": 32,
        "d_ff": 192,
        "num_layers": 3,
        "num_heads": 2,
        "n_positions": 160,
        "feed_forward_proj": "relu",
    },
    "qwen2": _DECODER | {"model_type": "qwen2", "use_sliding_window": False},
    "qwen3": _DECODER | {"model_type": "qwen3", "use_sliding_window": False},
    "llama": _DECODER | {"model_type": "llama"},
    # As llama-nemotron-embed has it, in files that `transformers` cannot load: see `as_known`.
    "llama_bidirec": _DECODER
    | {
        "model_type": "llama_bidirec",
        "architectures": ["LlamaBidirectionalModel"],
        "pooling": "avg",
        "auto_map": {"AutoModel": "llama_bidirectional_model.LlamaBidirectionalModel"},
    },
    "eurobert": _DECODER
    | {"model_type": "eurobert", "tie_word_embeddings": False, "pad_token_id": 0},
    "mistral": _DECODER | {"model_type": "mistral", "sliding_window": 16},
}
"""config.json of each family, without what `make_family` adds."""
# In files their tensors have other names than in the model of transformers.
_RENAMED = ("nomic_bert", "gte", "new")


def make_family(
    folder: Path,
    config: str | Mapping[str, Any],
    *,
    seed: int = 0,
    tokenizer: Literal["wordpiece", "bpe", "bpe with end"] = "wordpiece",
    sharded: bool = True,
    prefix: str = "",
    pooling: PoolingName = "mean",
    normalize: bool = True,
    max_seq_length: int | None = None,
    dense: Sequence[DenseSpec] = (),
    **changes: Any,
) -> Path:
    """Write a checkpoint and return `folder`.

    Args:
        folder: made if need be.
        config: a name in `CONFIGS`, or a config.json without vocab_size and architectures.
        tokenizer: its kind; ``with end`` appends the end token to every text.
        dense: modules behind the pooling.
        changes: fields of config.json in place of those.

    The other arguments are those of `tests.support.checkpoints.make_bert`.
    """
    made = (
        wordpiece() if tokenizer == "wordpiece" else byte_level_bpe(append_end="end" in tokenizer)
    )
    values = dict(CONFIGS[config] if isinstance(config, str) else config)
    values |= {"vocab_size": made.get_vocab_size(), **changes}
    if values.get("architectures") == [jina_bert.CLASS_NAME]:
        shapes, class_name = jina_bert.jina_bert_shapes(values), jina_bert.CLASS_NAME
    else:
        shapes, class_name = stored_shapes(encoder_class(values), values)
    values.setdefault("architectures", [class_name])
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", values)
    made.save(str(folder / "tokenizer.json"))
    pad = "[PAD]" if tokenizer == "wordpiece" else END_OF_TEXT
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": pad},
    )
    tensors: Tensors = random_tensors(shapes, seed)
    write_tensors(folder, tensors, dtype="float32", sharded=sharded, prefix=prefix)
    write_sentence_transformers(
        folder,
        hidden=next(values[key] for key in ("hidden_size", "dim", "d_model") if key in values),
        pooling=pooling,
        normalize=normalize,
        max_seq_length=max_seq_length,
        dense=dense,
    )
    return folder


def encoder_class(values: Mapping[str, Any]) -> Any:
    """The class of `transformers` that makes the encoder of a config.json."""
    from transformers import AutoModel, AutoModelForTextEncoding

    # AutoModel would make T5's decoder too.
    return AutoModelForTextEncoding if values["model_type"] == "t5" else AutoModel


def stored_shapes(
    auto_class: Any, values: Mapping[str, Any]
) -> tuple[dict[str, tuple[int, ...]], str]:
    """Tensors in the files of the model that `transformers` makes of a config.json, and its class.

    Args:
        auto_class: e.g. AutoModel.
        values: of config.json.
    """
    import torch
    from transformers import AutoConfig

    config = AutoConfig.for_model(**as_known(values))
    with torch.device("meta"):
        model = auto_class.from_config(config)
    class_name = type(model).__name__
    if values["model_type"] not in _RENAMED:
        shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
        shapes.pop("encoder.embed_tokens.weight", None)  # of T5: stored once, as shared.weight
        return shapes, class_name
    with tempfile.TemporaryDirectory() as folder:
        auto_class.from_config(config).save_pretrained(folder)
        held = read_header(Path(folder) / "model.safetensors")
    return {name: info.shape for name, info in held.items()}, class_name


def as_known(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config of a type of the authors' own as one that `transformers` knows; others as they are.

    A bidirectional Llama is a Llama that is not causal; "new" is "gte" with other words:
    GTE's code turns pair i of a head of H by (s theta)^(-2i/H) / s^(2/H) where the file says "ntk"
    with factor s: the base s theta and linear scaling by s^(2/H).
    """
    if values["model_type"] == "llama_bidirec":
        return dict(values) | {"model_type": "llama", "is_causal": False}
    if values["model_type"] != "new":
        return dict(values)
    factor = values["rope_scaling"]["factor"]
    head_dim = values["hidden_size"] // values["num_attention_heads"]
    rope = {
        "rope_type": "linear",
        "rope_theta": values["rope_theta"] * factor,
        "factor": factor ** (2 / head_dim),
    }
    kept = {k: v for k, v in values.items() if k not in ("rope_scaling", "rope_theta")}
    return kept | {"model_type": "gte", "rope_parameters": rope}
