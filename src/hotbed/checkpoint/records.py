"""The frozen records a model folder is read into; everything later stands on them.

Field names follow config.json. Unknown keys of config.json are ignored; a known key with a value
that Hotbed does not support is an error at load that names the field and the supported values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from hotbed.core.model_info import Activation, Task

Pooling = Literal["mean", "cls", "last"]
Quantizer = Literal["none", "pplx"]
"""``pplx``: int8 = clamp(round(tanh(p) * 127), -128, 127) on the unnormalised pooled value."""
HeadKind = Literal["pooler", "first_token", "last_token", "yes_no"]
"""``pooler``: BERT's, dense and tanh on the first token, then the classifier. ``first_token``:
RoBERTa's, the same under other names. ``last_token``: one matrix without a bias. ``yes_no``: the
logit of "yes" less that of "no" at the last token."""
PairForm = Literal["tokenizer", "qwen3_reranker"]
"""``tokenizer``: query and document as the tokenizer joins two texts. ``qwen3_reranker``: in
Qwen3-Reranker's chat template."""
ModelSource = Literal["folder", "package", "hub"]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]


class BertConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a BERT encoder's config.json that the model uses."""

    vocab_size: _Count
    hidden_size: _Count
    num_hidden_layers: _Count
    num_attention_heads: _Count
    intermediate_size: _Count
    max_position_embeddings: _Count
    type_vocab_size: _Count = 2
    layer_norm_eps: _Positive = 1e-12
    hidden_act: str = "gelu"

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads


class Qwen3Config(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a Qwen3 decoder's config.json, causal or bidirectional.

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
    rope_theta: _Positive = 1_000_000.0
    hidden_act: str = "silu"
    is_causal: bool = True


ArchitectureConfig = BertConfig | Qwen3Config


class TensorInfo(msgspec.Struct, frozen=True):
    """Where one tensor lies and what it is, as the safetensors header says."""

    file: Path
    dtype: str
    """safetensors name, e.g. ``F32`` or ``BF16``."""
    shape: tuple[int, ...]


class PoolingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How token states become one row, from modules.json and 1_Pooling/config.json."""

    pooling: Pooling
    normalize: bool
    """Whether a Normalize module follows."""


class ScoreHead(msgspec.Struct, frozen=True, kw_only=True):
    """How a model that scores turns states into scores, and texts into its sequences."""

    kind: HeadKind
    labels: tuple[str, ...]
    """In the order of a row."""
    activation: Activation
    yes_no_tokens: tuple[int, int] | None = None
    """Ids of "yes" and "no"; of kind ``yes_no`` alone."""
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
    family: Literal["bert", "qwen3"]
    architecture: str
    """``architectures[0]`` of config.json."""
    config: ArchitectureConfig
    pooling: PoolingConfig
    prompts: Prompts
    tokenizer: TokenizerFiles
    max_tokens: int
    """Longest sequence, special tokens included: the smallest of max_seq_length
    (sentence_bert_config.json), max_position_embeddings and the tokenizer's model_max_length."""
    tensors: Mapping[str, TensorInfo]
    stored_names: Mapping[str, str]
    quantizer: Quantizer = "none"
    """The model's own recipe for int8 rows."""
    head: ScoreHead | None = None
    """Of a model that scores; None: it embeds."""

    @property
    def task(self) -> Task:
        return "embed" if self.head is None else "score"
