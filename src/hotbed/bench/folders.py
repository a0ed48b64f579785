"""Seeded random weights in a real shape, written as the model's authors would publish them.

Every system loads the same folder, so that their rows can be compared. The values are BF16, scaled
so that deep stacks still tell texts apart; a reranker's embeddings are small enough that its scores
spread between 0 and 1.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from hotbed.bench.shapes import Shape
from hotbed.bench.stand_ins import END_OF_TEXT, byte_level_bpe, unigram

_SHARD_BYTES = 2 << 30
_COMPLETE = "bench-complete.json"
# Two of XLM-R's 8194 rows lie before its first position; systems differ in whether the last two
# can be used.
_XLMR_SPARE_POSITIONS = 4
_MAX_TOKENS = 8192


def max_tokens(shape: Shape) -> int:
    """Longest sequence that every system takes."""
    positions: int = shape.config.max_position_embeddings
    return min(_MAX_TOKENS, positions - (_XLMR_SPARE_POSITIONS if shape.family == "bert" else 0))


def write_folder(
    shape: Shape,
    folder: Path,
    *,
    device: torch.device,
    texts: list[str],
    tokenizer: Path | None = None,
    seed: int = 0,
) -> None:
    """Write the model, unless the folder holds this very one already.

    Args:
        shape: a decoder as Qwen3ForCausalLM, a BERT as XLMRobertaModel.
        folder: made anew.
        device: that draws the random numbers; another kind of device draws others.
        texts: a stand-in for the tokenizer is trained on.
        tokenizer: tokenizer.json of a decoder; None: the stand-in.
        seed: of the weights.
    """
    identity = {
        "config": config_json(shape),
        "seed": seed,
        "device": device.type,
        "tokenizer": None if tokenizer is None else tokenizer.stat().st_size,
    }
    mark = folder / _COMPLETE
    if mark.is_file() and json.loads(mark.read_text(encoding="utf-8")) == identity:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _write_json(folder / "config.json", config_json(shape))
    _write_tensors(folder, _random_tensors(shape, device, seed))
    _write_tokenizer(shape, folder, texts, tokenizer)
    if shape.task == "embed":
        write_modules(folder, shape.config.hidden_size, shape.recipe.pooling, max_tokens(shape))
    _write_json(mark, identity)


def config_json(shape: Shape) -> dict[str, Any]:
    """config.json in the authors' names."""
    c = shape.config
    common = {
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_hidden_layers,
        "num_attention_heads": c.num_attention_heads,
        "intermediate_size": c.intermediate_size,
        "max_position_embeddings": c.max_position_embeddings,
        "dtype": "bfloat16",
    }
    if shape.family == "bert":
        return common | {
            "architectures": ["XLMRobertaModel"],
            "model_type": "xlm-roberta",
            "type_vocab_size": c.type_vocab_size,
            "layer_norm_eps": c.layer_norm_eps,
            "hidden_act": "gelu",
            "bos_token_id": 0,
            "pad_token_id": 1,
            "eos_token_id": 2,
            "position_embedding_type": "absolute",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }
    return common | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_key_value_heads": c.num_key_value_heads,
        "head_dim": c.head_dim,
        "rms_norm_eps": c.rms_norm_eps,
        "rope_theta": c.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "is_causal": c.is_causal,
    }


def write_modules(folder: Path, width: int, pooling: str, max_seq_length: int) -> None:
    """sentence-transformers' files: pooling, and rows of unit length."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds.items())
    ]
    keys = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}
    modes = {f"pooling_mode_{key}": name == pooling for name, key in keys.items()}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    _write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width} | modes)
    _write_json(folder / "modules.json", modules)
    settings = {"max_seq_length": max_seq_length, "do_lower_case": False}
    _write_json(folder / "sentence_bert_config.json", settings)


def _stored_shapes(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The stored tensors' names and shapes, in the files' order."""
    c = shape.config
    d, f = c.hidden_size, c.intermediate_size
    if shape.family == "bert":
        yield "embeddings.word_embeddings.weight", (c.vocab_size, d)
        yield "embeddings.position_embeddings.weight", (c.max_position_embeddings, d)
        yield "embeddings.token_type_embeddings.weight", (c.type_vocab_size, d)
        yield from _norm_and_bias("embeddings.LayerNorm", d)
        for i in range(c.num_hidden_layers):
            layer = f"encoder.layer.{i}."
            linears = {f"attention.self.{part}": (d, d) for part in ("query", "key", "value")} | {
                "attention.output.dense": (d, d),
                "intermediate.dense": (f, d),
                "output.dense": (d, f),
            }
            for name, size in linears.items():
                yield f"{layer}{name}.weight", size
                yield f"{layer}{name}.bias", size[:1]
            yield from _norm_and_bias(f"{layer}attention.output.LayerNorm", d)
            yield from _norm_and_bias(f"{layer}output.LayerNorm", d)
        return
    n, k, h = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    yield "model.embed_tokens.weight", (c.vocab_size, d)
    for i in range(c.num_hidden_layers):
        layer = f"model.layers.{i}."
        yield from (
            (f"{layer}input_layernorm.weight", (d,)),
            (f"{layer}self_attn.q_proj.weight", (n * h, d)),
            (f"{layer}self_attn.k_proj.weight", (k * h, d)),
            (f"{layer}self_attn.v_proj.weight", (k * h, d)),
            (f"{layer}self_attn.q_norm.weight", (h,)),
            (f"{layer}self_attn.k_norm.weight", (h,)),
            (f"{layer}self_attn.o_proj.weight", (d, n * h)),
            (f"{layer}post_attention_layernorm.weight", (d,)),
            (f"{layer}mlp.gate_proj.weight", (f, d)),
            (f"{layer}mlp.up_proj.weight", (f, d)),
            (f"{layer}mlp.down_proj.weight", (d, f)),
        )
    yield "model.norm.weight", (d,)


def _norm_and_bias(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _random_tensors(shape: Shape, device: torch.device, seed: int) -> Iterator[tuple[str, Tensor]]:
    generator = torch.Generator(device).manual_seed(seed)
    for name, size in _stored_shapes(shape):
        values = torch.randn(size, generator=generator, device=device)
        if "norm" in name.lower() and not name.endswith("bias"):
            values = 1 + 0.1 * values
        elif len(size) == 1:
            values *= 0.02
        elif "embed" in name:
            if shape.task == "score":
                # The difference of two rows times a state of length sqrt(D): a logit near 1.
                values /= (2 * size[1]) ** 0.5
        else:
            values /= size[1] ** 0.5
            # Deep post-norm stacks forget their text otherwise, and a first token that attends to
            # all tokens alike sees the mean of thousands: all rows would be alike.
            if "output.dense" in name:
                values *= 0.3
            elif "attention.self.query" in name:
                values *= 3
        yield name, values.to(torch.bfloat16).cpu()


def _write_tensors(folder: Path, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Files of about 2 GiB and the index that names them."""
    weight_map: dict[str, str] = {}
    total = 0
    shard: dict[str, Tensor] = {}

    def flush() -> None:
        name = f"model-{len(set(weight_map.values())) + 1:05d}.safetensors"
        save_file(shard, str(folder / name), metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(shard, name))
        shard.clear()

    for name, tensor in tensors:
        shard[name] = tensor
        total += tensor.nbytes
        if sum(t.nbytes for t in shard.values()) >= _SHARD_BYTES:
            flush()
    if shard:
        flush()
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)


def _write_tokenizer(shape: Shape, folder: Path, texts: list[str], given: Path | None) -> None:
    to = folder / "tokenizer.json"
    common = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_tokens(shape),
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
    }
    if shape.family == "bert":
        unigram(texts, max_vocab=shape.config.vocab_size).save(str(to))
        names = {"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>"} | {
            "unk": "<unk>"
        }
    else:
        if given is None:
            byte_level_bpe(texts, max_vocab=shape.config.vocab_size).save(str(to))
        else:
            shutil.copyfile(given, to)
        names = {"pad": END_OF_TEXT, "eos": END_OF_TEXT}
    tokens = {f"{key}_token": value for key, value in names.items()}
    _write_json(folder / "tokenizer_config.json", common | tokens)


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
