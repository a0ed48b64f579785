"""The tensors of a BERT: what its files call them, DistilBERT's, and Jina's of XLM-R.

Legend: D hidden, F mlp dim.
"""

from __future__ import annotations

from hotbed.checkpoint.records import BertConfig
from hotbed.rose.weights import Parameter, WeightMap, layer_norm, linear

# What the files call the parts of a layer, and the norm of the embedding.
_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "bert": {
        "layer": ("encoder.layer.{}",),
        "qkv": tuple(f"attention.self.{part}" for part in ("query", "key", "value")),
        "out": ("attention.output.dense",),
        "attention_norm": ("attention.output.LayerNorm",),
        "up": ("intermediate.dense",),
        "down": ("output.dense",),
        "mlp_norm": ("output.LayerNorm",),
        "embedding_norm": ("embeddings.LayerNorm",),
    },
    "flash": {
        "layer": ("encoder.layers.{}",),
        "qkv": ("mixer.Wqkv",),
        "out": ("mixer.out_proj",),
        "attention_norm": ("norm1",),
        "up": ("mlp.fc1",),
        "down": ("mlp.fc2",),
        "mlp_norm": ("norm2",),
        "embedding_norm": ("emb_ln",),
    },
    "distilbert": {
        "layer": ("transformer.layer.{}",),
        "qkv": tuple(f"attention.{part}_lin" for part in "qkv"),
        "out": ("attention.out_lin",),
        "attention_norm": ("sa_layer_norm",),
        "up": ("ffn.lin1",),
        "down": ("ffn.lin2",),
        "mlp_norm": ("output_layer_norm",),
        "embedding_norm": ("embeddings.LayerNorm",),
    },
}
_UNUSED = (
    r"embeddings\.position_ids",
    r"embeddings\.token_type_ids",
    r"pooler\..*",
    r"discriminator_predictions\..*",
    r"cls\..*",
    r"lm_head\..*",
    r"vocab_(transform|layer_norm|projector)\..*",
)


def weight_map(config: BertConfig) -> WeightMap:
    """Parameters by name and the stored tensors they come from."""
    d, f = config.hidden_size, config.intermediate_size
    names = _NAMES[config.naming]
    parameters = {
        "word": Parameter(("embeddings.word_embeddings.weight",), (config.vocab_size, d)),
        "position": Parameter(
            ("embeddings.position_embeddings.weight",), (config.max_position_embeddings, d)
        ),
        **layer_norm("embedding_norm", names["embedding_norm"][0], d),
    }
    if config.naming != "distilbert":
        parameters["segment"] = Parameter(
            ("embeddings.token_type_embeddings.weight",), (config.type_vocab_size, d)
        )
    shapes = {"qkv": (3 * d, d), "out": (d, d), "up": (f, d), "down": (d, f)}
    for i in range(config.num_hidden_layers):
        stored, made = names["layer"][0].format(i), f"layers.{i}"
        for part, shape in shapes.items():
            sources = tuple(f"{stored}.{source}" for source in names[part])
            parameters |= linear(f"{made}.{part}", sources, shape, bias=True)
        for part in ("attention_norm", "mlp_norm"):
            parameters |= layer_norm(f"{made}.{part}", f"{stored}.{names[part][0]}", d)
    return WeightMap(parameters, _UNUSED)
