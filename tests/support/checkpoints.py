"""Seeded random tiny checkpoints on disk, in the layout of sentence-transformers.

The folders load in `transformers` and `sentence_transformers` too, except pplx-embed's kind, which
needs code of its own there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from safetensors.numpy import save_file

from tests.support.tiny_tokenizers import END_OF_TEXT, byte_level_bpe, wordpiece
from tests.support.tiny_weights import (
    Shapes,
    Tensors,
    bert_shapes,
    qwen3_shapes,
    random_tensors,
)

Dtype = Literal["float32", "float16", "bfloat16"]
PoolingName = Literal["mean", "cls", "last"]
DenseSpec = tuple[int, str, bool]
"""Width, activation and bias of a Dense module."""

_POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "last": "pooling_mode_lasttoken",
}


def make_bert(
    folder: Path,
    *,
    seed: int = 0,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 2,
    intermediate: int = 128,
    vocab_size: int | None = None,
    max_position_embeddings: int = 128,
    type_vocab_size: int = 2,
    hidden_act: str = "gelu",
    dtype: Dtype = "float32",
    sharded: bool = False,
    prefix: str = "",
    pooling: PoolingName = "mean",
    normalize: bool = True,
    prompts: Mapping[str, str] | None = None,
    default_prompt_name: str | None = None,
    max_seq_length: int | None = 64,
    sentence_transformers: bool = True,
    dense: Sequence[DenseSpec] = (),
) -> Path:
    """Write a BERT encoder and return `folder`.

    Args:
        folder: made if need be.
        vocab_size: rows of the embedding; None takes the tokenizer's.
        sharded: two files and an index instead of one.
        prefix: put before every tensor name, e.g. ``bert.``.
        max_seq_length: for sentence_bert_config.json; None writes null there.
        sentence_transformers: False leaves out modules.json and all that belongs to it.
        dense: modules behind the pooling.
    """
    tokenizer = wordpiece()
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": vocab_size or tokenizer.get_vocab_size(),
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": intermediate,
        "max_position_embeddings": max_position_embeddings,
        "type_vocab_size": type_vocab_size,
        "hidden_act": hidden_act,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "dtype": dtype,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": max_position_embeddings,
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
        },
    )
    tensors = random_tensors(bert_shapes(config), seed)
    write_tensors(folder, tensors, dtype=dtype, sharded=sharded, prefix=prefix)
    if sentence_transformers:
        write_sentence_transformers(
            folder,
            hidden=hidden,
            pooling=pooling,
            normalize=normalize,
            prompts=prompts,
            default_prompt_name=default_prompt_name,
            max_seq_length=max_seq_length,
            dense=dense,
        )
    return folder


def make_qwen3(
    folder: Path,
    *,
    causal: bool = True,
    pplx: bool = False,
    contextual: bool = False,
    seed: int = 0,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    intermediate: int = 128,
    vocab_size: int | None = None,
    max_position_embeddings: int = 256,
    rope_theta: float = 1_000_000.0,
    dtype: Dtype = "float32",
    sharded: bool = False,
    prefix: str = "",
    pooling: PoolingName | None = None,
    normalize: bool | None = None,
    prompts: Mapping[str, str] | None = None,
    default_prompt_name: str | None = None,
    max_seq_length: int | None = None,
    sentence_transformers: bool = True,
) -> Path:
    """Write a Qwen3 model, by default like Qwen3-Embedding, and return `folder`.

    Args:
        folder: made if need be.
        causal: False writes ``is_causal`` false, which `transformers` too reads as bidirectional.
        pplx: like pplx-embed instead: its own model_type (which `transformers` cannot load without
            the folder's code), bidirectional, and a FlexibleQuantizer at the end of modules.json.
        contextual: with `pplx`, like pplx-embed-context instead.
        pooling: None takes last token if causal, else mean.
        normalize: None takes True, for pplx False.
        prefix: put before every tensor name, e.g. ``model.``.

    The other arguments are those of `make_bert`.
    """
    causal = causal and not pplx
    tokenizer = byte_level_bpe(append_end=causal)
    end = tokenizer.token_to_id(END_OF_TEXT)
    config: dict[str, Any] = {
        "architectures": ["PPLXQwen3Model" if pplx else "Qwen3ForCausalLM"],
        "model_type": "bidirectional_pplx_qwen3" if pplx else "qwen3",
        "vocab_size": vocab_size or tokenizer.get_vocab_size(),
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": intermediate,
        "max_position_embeddings": max_position_embeddings,
        "rms_norm_eps": 1e-6,
        "rope_theta": rope_theta,
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "bos_token_id": end,
        "eos_token_id": end,
        "dtype": dtype,
    }
    if pplx:
        config["use_bidirectional_attention"] = True
        kind = "PPLXQwen3ContextualModel" if contextual else "PPLXQwen3Model"
        config["auto_map"] = {"AutoModel": f"modeling.{kind}"}
    elif not causal:
        config["is_causal"] = False
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": 131_072,
            "pad_token": END_OF_TEXT,
            "eos_token": END_OF_TEXT,
            "padding_side": "left",
        },
    )
    tensors = random_tensors(qwen3_shapes(config), seed)
    write_tensors(folder, tensors, dtype=dtype, sharded=sharded, prefix=prefix)
    if sentence_transformers:
        write_sentence_transformers(
            folder,
            hidden=hidden,
            pooling=pooling or ("last" if causal else "mean"),
            normalize=not pplx if normalize is None else normalize,
            prompts=prompts,
            default_prompt_name=default_prompt_name,
            max_seq_length=max_seq_length,
            quantizer=pplx,
        )
    return folder


def write_tensors(
    folder: Path, tensors: Tensors, *, dtype: Dtype, sharded: bool, prefix: str
) -> None:
    """Write model.safetensors, or two shards with their index, and drop what was there before."""
    for old in (*folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")):
        old.unlink()
    if not sharded:
        save_tensors(folder / "model.safetensors", tensors, dtype=dtype, prefix=prefix)
        return
    names = list(tensors)
    half = len(names) // 2
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:half], names[half:]), start=1):
        file = f"model-{number:05}-of-00002.safetensors"
        shard = {n: tensors[n] for n in part}
        save_tensors(folder / file, shard, dtype=dtype, prefix=prefix)
        weight_map |= {prefix + n: file for n in part}
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def save_tensors(
    file: Path, tensors: Tensors, *, dtype: Dtype = "float32", prefix: str = ""
) -> None:
    """Write one safetensors file."""
    metadata = {"format": "pt"}
    if dtype == "bfloat16":  # numpy has no such type
        import torch
        from safetensors.torch import save_file as save_torch_file

        halves = {prefix + n: torch.from_numpy(a).bfloat16() for n, a in tensors.items()}
        save_torch_file(halves, file, metadata=metadata)
        return
    arrays = {prefix + n: a.astype(dtype) for n, a in tensors.items()}
    save_file(arrays, file, metadata=metadata)


def write_sentence_transformers(
    folder: Path,
    *,
    hidden: int,
    pooling: PoolingName,
    normalize: bool,
    prompts: Mapping[str, str] | None = None,
    default_prompt_name: str | None = None,
    max_seq_length: int | None = None,
    quantizer: bool = False,
    dense: Sequence[DenseSpec] = (),
) -> None:
    """Write modules.json and its companions; Normalize gets no folder, as in the default model."""
    modules = [("", "sentence_transformers.models.Transformer")]
    modules.append(("1_Pooling", "sentence_transformers.models.Pooling"))
    width = hidden
    for out, activation, bias in dense:
        modules.append((f"{len(modules)}_Dense", "sentence_transformers.models.Dense"))
        write_dense(folder / modules[-1][0], width, out, activation=activation, bias=bias)
        width = out
    if normalize:
        modules.append((f"{len(modules)}_Normalize", "sentence_transformers.models.Normalize"))
    listed: list[dict[str, Any]] = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (path, kind) in enumerate(modules)
    ]
    if quantizer:
        index = len(listed)
        listed.append(
            {
                "idx": index,
                "name": str(index),
                "path": "",
                "type": "st_quantize.FlexibleQuantizer",
                "kwargs": ["quantization"],
            }
        )
    write_json(folder / "modules.json", listed)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    write_json(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": hidden}
        | {key: mode == pooling for mode, key in _POOLING_KEYS.items()}
        | {"pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False},
    )
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": max_seq_length, "do_lower_case": False},
    )
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": dict(prompts or {}), "default_prompt_name": default_prompt_name},
    )


def write_dense(
    folder: Path, width: int, out: int, *, activation: str = "linear.Identity", bias: bool = False
) -> None:
    """Write a Dense module's folder; `activation` is the part of torch's name after ``modules.``"""
    folder.mkdir(exist_ok=True)
    config = {
        "in_features": width,
        "out_features": out,
        "bias": bias,
        "activation_function": f"torch.nn.modules.{activation}",
    }
    write_json(folder / "config.json", config)
    shapes: Shapes = {"linear.weight": (out, width)} | ({"linear.bias": (out,)} if bias else {})
    save_tensors(folder / "model.safetensors", random_tensors(shapes, seed=width + out))


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON."""
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def edit_json(path: Path, **changes: object) -> None:
    """Set keys of a JSON object on disk."""
    write_json(path, json.loads(path.read_text(encoding="utf-8")) | changes)
