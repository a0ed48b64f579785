"""Names, shapes and seeded random values of the tiny checkpoints' tensors.

Matrices are scaled by the square root of their fan-in, so that every layer and every token moves
the result; with the usual 0.02 a wrong attention or a swapped layer would hardly show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = dict[str, NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]


def random_tensors(shapes: Shapes, seed: int) -> Tensors:
    """float32 tensors: matrices by 1/sqrt(fan-in), embeddings by 1, norms near 1, biases near 0."""
    random = np.random.default_rng(seed)
    tensors: Tensors = {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape, dtype=np.float32)
        if ("norm" in name.lower() or "_ln." in name) and name.endswith("weight"):
            values = 1 + 0.1 * values
        elif len(shape) == 1:
            values *= 0.1
        elif "embed" not in name:
            values /= np.float32(np.sqrt(shape[-1]))
        tensors[name] = values.astype(np.float32)
    return tensors


def bert_shapes(config: Mapping[str, Any]) -> Shapes:
    """Tensors of a BertModel with pooler."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]

    def linear(name: str, rows: int, columns: int) -> Shapes:
        return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}

    def norm(name: str) -> Shapes:
        return {f"{name}.weight": (hidden,), f"{name}.bias": (hidden,)}

    shapes: Shapes = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], hidden),
    } | norm("embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            shapes |= linear(f"{layer}.attention.self.{part}", hidden, hidden)
        shapes |= linear(f"{layer}.attention.output.dense", hidden, hidden)
        shapes |= norm(f"{layer}.attention.output.LayerNorm")
        shapes |= linear(f"{layer}.intermediate.dense", inner, hidden)
        shapes |= linear(f"{layer}.output.dense", hidden, inner)
        shapes |= norm(f"{layer}.output.LayerNorm")
    return shapes | linear("pooler.dense", hidden, hidden)


def qwen3_shapes(config: Mapping[str, Any]) -> Shapes:
    """Tensors of a Qwen3Model."""
    hidden, inner, head_dim = (config[k] for k in ("hidden_size", "intermediate_size", "head_dim"))
    rows = config["num_attention_heads"] * head_dim
    kv_rows = config["num_key_value_heads"] * head_dim
    shapes: Shapes = {"embed_tokens.weight": (config["vocab_size"], hidden)}
    for i in range(config["num_hidden_layers"]):
        layer = f"layers.{i}"
        shapes |= {
            f"{layer}.input_layernorm.weight": (hidden,),
            f"{layer}.self_attn.q_proj.weight": (rows, hidden),
            f"{layer}.self_attn.k_proj.weight": (kv_rows, hidden),
            f"{layer}.self_attn.v_proj.weight": (kv_rows, hidden),
            f"{layer}.self_attn.o_proj.weight": (hidden, rows),
            f"{layer}.self_attn.q_norm.weight": (head_dim,),
            f"{layer}.self_attn.k_norm.weight": (head_dim,),
            f"{layer}.post_attention_layernorm.weight": (hidden,),
            f"{layer}.mlp.gate_proj.weight": (inner, hidden),
            f"{layer}.mlp.up_proj.weight": (inner, hidden),
            f"{layer}.mlp.down_proj.weight": (hidden, inner),
        }
    return shapes | {"norm.weight": (hidden,)}
