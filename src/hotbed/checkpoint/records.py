"""The frozen records a model folder is read into; everything later stands on them.

Field names follow config.json. Unknown keys of config.json are ignored; a known key with a value
that Hotbed does not support is an error at load that names the field and the supported values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from hotbed.checkpoint.output_records import MultiVectorHead, SparseHead
from hotbed.checkpoint.tensor_records import (
    DENSE_ACTIVATIONS,
    DenseActivation,
    DenseModule,
    TensorInfo,
)
from hotbed.core.model_info import Activation, Task
from hotbed.core.output import OutputKind
from hotbed.core.rope import RopeScaling

__all__ = [
    "DENSE_ACTIVATIONS",
    "DenseActivation",
    "DenseModule",
    "MultiVectorHead",
    "SparseHead",
    "TensorInfo",
]

FamilyName = Literal[
    "bert", "deberta", "decoder", "gemma3", "jina_bert", "modernbert", "mpnet", "rotary_bert", "t5"
]
Pooling = Literal["mean", "cls", "last"]
Quantizer = Literal["none", "pplx"]
"""``pplx``: int8 = clamp(round(tanh(p) * 127), -128, 127) on the unnormalised pooled value."""
HeadKind = Literal[
    "bert", "electra", "roberta", "distilbert", "modernbert", "deberta", "decoder", "yes_no"
]
"""Layer and names of the stored tensors, by the family they come from; see
`hotbed.rose.models.heads`. ``yes_no``: the logit of "yes" less that of "no"."""
PairForm = Literal["tokenizer", "qwen3_reranker", "mxbai_reranker"]
"""``tokenizer``: query and document as the tokenizer joins two texts; the others: in the chat
template of Qwen3-Reranker, of mxbai-rerank-v2."""
ModelSource = Literal["folder", "package", "hub"]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]


class _Encoder(msgspec.Struct, frozen=True, kw_only=True):
    """What config.json of BERT and its relatives has in common; heads share the hidden size.

    Other records keep their fields in an order of their own: it is part of a model's fingerprint.
    """

    vocab_size: _Count
    hidden_size: _Count
    num_hidden_layers: _Count
    num_attention_heads: _Count
    intermediate_size: _Count
    max_position_embeddings: _Count

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def longest_sequence(self) -> int:
        """Tokens that there are positions for."""
        return self.max_position_embeddings


class BertConfig(_Encoder, frozen=True, kw_only=True):
    """Fields of a BERT encoder's config.json that the model uses; with its relatives."""

    type_vocab_size: _Count = 2
    layer_norm_eps: _Positive = 1e-12
    hidden_act: str = "gelu"
    position_offset: int = 0
    """Row of the position table that a sequence's first token takes."""
    naming: Literal["bert", "distilbert", "flash"] = "bert"
    """Of the tensors; DistilBERT has no token types either. ``flash``: Jina's own code of XLM-R."""

    @property
    def longest_sequence(self) -> int:
        """Tokens that there are positions for."""
        return self.max_position_embeddings - self.position_offset


class DecoderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a decoder's config.json (Qwen3, Qwen2, Llama, Mistral), and what follows from them.

    `head_dim` is a field of its own: hidden_size / num_attention_heads is wrong for Qwen3 4B.
    """

    vocab_size: _Count
    hidden_size: _Count
    num_hidden_layers: _Count
    num_attention_heads: _Count
    num_key_value_heads: _Count
    head_dim: _Count
    intermediate_size: _Count
    max_position_embeddings: _Count
    rms_norm_eps: _Positive = 1e-6
    rope_theta: _Positive
    rope_scaling: RopeScaling | None = None
    is_causal: bool = True
    window: _Count | None = None
    """Tokens that one sees to its left, itself not counted; None for all."""
    qk_norm: bool = False
    """Whether q and k are normalised for each head, as in Qwen3."""
    qkv_bias: bool = False
    """Whether their projections have biases, as in Qwen2."""

    @property
    def longest_sequence(self) -> int:
        """Tokens that there are positions for."""
        return self.max_position_embeddings


class ModernBertConfig(_Encoder, frozen=True, kw_only=True):
    """Fields of a ModernBERT encoder's config.json, and what follows from them.

    Local layers see `window` tokens on each side and rotate by `local_theta`, the others see all
    and rotate by `global_theta`.
    """

    global_theta: _Positive
    local_theta: _Positive
    window: _Count
    is_local: tuple[bool, ...]
    """For each layer."""
    norm_eps: _Positive = 1e-5


class Gemma3Config(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a Gemma 3 text model's config.json, and what follows from them.

    Local layers see a `window` and rotate by `local_theta`, the others see all and rotate by
    `global_theta`.
    """

    vocab_size: _Count
    hidden_size: _Count
    num_hidden_layers: _Count
    num_attention_heads: _Count
    num_key_value_heads: _Count
    head_dim: _Count
    intermediate_size: _Count
    max_position_embeddings: _Count
    global_theta: _Positive
    global_scaling: RopeScaling | None = None
    local_theta: _Positive
    window: _Count
    """Tokens on each side, or to the left of a causal model; the token itself not counted."""
    is_local: tuple[bool, ...]
    """For each layer."""
    rms_norm_eps: _Positive = 1e-6
    is_causal: bool = True

    @property
    def longest_sequence(self) -> int:
        """Tokens that there are positions for."""
        return self.max_position_embeddings


class MpnetConfig(_Encoder, frozen=True, kw_only=True):
    """Fields of MPNet's config.json that the model uses."""

    max_position_embeddings: Annotated[int, msgspec.Meta(ge=3, le=2**31 - 1)]
    relative_attention_num_buckets: Annotated[int, msgspec.Meta(ge=4, multiple_of=4)] = 32
    layer_norm_eps: _Positive = 1e-12

    @property
    def position_offset(self) -> int:
        """Row of the position table that a sequence's first token takes, whatever the pad id."""
        return 2

    @property
    def longest_sequence(self) -> int:
        """Tokens that there are positions for."""
        return self.max_position_embeddings - self.position_offset


class DebertaConfig(_Encoder, frozen=True, kw_only=True):
    """Fields of DeBERTa-v3's config.json that the model uses."""

    max_position_embeddings: Annotated[int, msgspec.Meta(ge=2, le=2**31 - 1)]
    """That the buckets of the distances were laid out for."""
    position_buckets: Annotated[int, msgspec.Meta(ge=4)]
    """Of the distances to one side; those to the other have as many."""
    layer_norm_eps: _Positive = 1e-7


class JinaBertConfig(_Encoder, frozen=True, kw_only=True):
    """Fields of config.json of Jina's BERT that the model uses; ALiBi itself knows no end."""

    type_vocab_size: _Count = 2
    layer_norm_eps: _Positive = 1e-12


class RotaryBertConfig(_Encoder, frozen=True, kw_only=True):
    """Fields of config.json of Nomic's and GTE's BERT, and what follows from them."""

    rope_theta: _Positive
    rope_scaling: RopeScaling | None = None
    gate: Literal["silu", "gelu"]
    """Activation of the gate in the MLP."""
    naming: Literal["nomic", "gte"]
    """Of the tensors; GTE's layers have biases, Nomic's none."""
    layer_norm_eps: _Positive = 1e-12
    type_vocab_size: Annotated[int, msgspec.Meta(ge=0)] = 2
    """0: no table of token types."""


class T5Config(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of T5's config.json that its encoder uses, by the names of the others'."""

    vocab_size: _Count
    hidden_size: _Count
    num_hidden_layers: _Count
    num_attention_heads: _Count
    head_dim: _Count
    intermediate_size: _Count
    max_position_embeddings: _Count = 512
    relative_attention_num_buckets: Annotated[int, msgspec.Meta(ge=4, multiple_of=4)] = 32
    layer_norm_eps: _Positive = msgspec.field(default=1e-6, name="layer_norm_epsilon")
    is_gated: bool = False

    @property
    def longest_sequence(self) -> int:
        """Tokens of the longest text."""
        return self.max_position_embeddings


ArchitectureConfig = (
    BertConfig
    | DebertaConfig
    | DecoderConfig
    | Gemma3Config
    | JinaBertConfig
    | ModernBertConfig
    | MpnetConfig
    | RotaryBertConfig
    | T5Config
)


class PoolingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How token states become one row, from modules.json and 1_Pooling/config.json."""

    pooling: Pooling
    normalize: bool
    """Whether a Normalize module follows."""


class ScoreHead(msgspec.Struct, frozen=True, kw_only=True):
    """How a model that scores turns states into scores, and texts into its sequences."""

    kind: HeadKind
    pooling: Pooling
    """Of the states that the head reads."""
    labels: tuple[str, ...]
    """In the order of a row."""
    activation: Activation
    yes_no_tokens: tuple[int, int] | None = None
    """Ids of "yes" and "no", or what the model says instead of them; of kind ``yes_no`` alone."""
    dense_bias: bool = True
    norm_eps: float = 0.0
    """Both of kind ``modernbert`` alone."""
    tied: bool = False
    """Whether the output matrix is the embedding's; matters to kind ``yes_no`` alone."""
    token_types: Literal[1, 2] = 1
    """2 if the model tells the second text of a pair from the first by a token type."""
    pair_form: PairForm = "tokenizer"
    instruction: str | None = None
    """The files' own instruction for the template; None: the template's default."""


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """Named input prefixes, from config_sentence_transformers.json."""

    by_name: Mapping[str, str] = {}
    default_name: str | None = None


class TokenizerFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What the tokenizer is built from."""

    tokenizer_json: Path
    chunk_separator: str | None = None
    """The special token that the model wants between the chunks of a document; None: nothing."""
    end_token: str | None = None
    """The token that must end every text, whether tokenizer.json says so or not; None: as it says.
    """
    lower_case: bool = False
    """Whether texts are lower-cased, whether tokenizer.json does it or not; False: as it says."""
    bert_normalizer: Mapping[str, bool | None] = {}
    """Fields of BERT's normalizer that tokenizer_config.json states, by their names in
    tokenizer.json."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One model, found, read and checked, without its tensors' bytes.

    `tensors` has names with the root prefix (``model.``, ``bert.``, …) already taken off, so that a
    model's name map needs one form only; `stored_names` maps them back to the names in the files.
    Both are empty if the model was loaded without its weights.
    """

    name: str
    """As asked for."""
    source: ModelSource
    folder: Path
    family: FamilyName
    architecture: str
    """``architectures[0]`` of config.json."""
    config: ArchitectureConfig
    pooling: PoolingConfig
    prompts: Prompts
    tokenizer: TokenizerFiles
    max_tokens: int
    """Longest sequence, special tokens included: max_seq_length (sentence_bert_config.json), else
    the tokenizer's model_max_length; at most the config's longest sequence."""
    tensors: Mapping[str, TensorInfo]
    stored_names: Mapping[str, str]
    quantizer: Quantizer = "none"
    """The model's own recipe for int8 rows."""
    dense: tuple[DenseModule, ...] = ()
    """Linear layers that the pooled row goes through, in order."""
    head: ScoreHead | None = None
    """Of a model that scores; None: it embeds."""
    has_dense: bool = True
    """Whether pooled rows mean something; if not, `pooling` does not either."""
    multi_vector: MultiVectorHead | None = None
    sparse: SparseHead | None = None

    @property
    def dimensions(self) -> int:
        """Width of a row; of a model that scores, its labels."""
        if self.head is not None:
            return len(self.head.labels)
        return self.dense[-1].out_features if self.dense else self.config.hidden_size

    @property
    def task(self) -> Task:
        return "embed" if self.head is None else "score"

    @property
    def outputs(self) -> tuple[tuple[OutputKind, int], ...]:
        """What an embedding model gives, with the native widths; see `ModelInfo.outputs`."""
        if self.head is not None:
            return ()
        made: list[tuple[OutputKind, int]] = [("dense", self.dimensions)] if self.has_dense else []
        if self.multi_vector is not None:
            made.append(("multi_vector", self.multi_vector.dimensions))
        if self.sparse is not None:
            made.append(("sparse", self.config.vocab_size))
        return (*made, ("tokens", self.config.hidden_size))
