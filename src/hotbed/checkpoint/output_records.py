"""Records of the heads that give an embedding model outputs besides dense rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from hotbed.checkpoint.tensor_records import DenseModule, TensorInfo

SparseKind = Literal["token_weights", "mlm"]
"""``token_weights``: a weight a token, max(0, w x + b), for the token's own id (bge-m3). ``mlm``: a
weight for every id of the vocabulary from a masked language model's logits (SPLADE)."""


class MultiVectorHead(msgspec.Struct, frozen=True, kw_only=True):
    """How token states become vectors for late interaction, and how texts are read for it."""

    dense: tuple[DenseModule, ...]
    """Linear layers that every token's state goes through, in order."""
    normalize: bool
    """Whether the vectors are L2-normalised when a request does not say."""
    skips_first: bool = False
    """Whether a sequence's first token has no vector (bge-m3)."""
    skipped_tokens: tuple[int, ...] = ()
    """Ids whose vectors are left out of the answer."""
    skips_in: tuple[Literal["query", "document"], ...] = ("document",)
    """The inputs in which they are; an input of another or no type counts as a document."""
    query_length: int | None = None
    """Longest query in tokens; None: the model's limit."""
    document_length: int | None = None
    expansion: tuple[int, int] | None = None
    """A token id that fills up queries behind their end, and the length up to which it does."""

    marks: tuple[tuple[str, int], ...] = ()
    """Prefixes that are one token of the vocabulary, and its id: the text must become just that."""

    @property
    def dimensions(self) -> int:
        return self.dense[-1].out_features


class SparseHead(msgspec.Struct, frozen=True, kw_only=True):
    """How token states become weights of token ids."""

    kind: SparseKind
    tensors: Mapping[str, TensorInfo] = {}
    """Weight and bias of kind ``token_weights`` by their stored names, which end in these words;
    empty without the weights. The tensors of kind ``mlm`` are among the checkpoint's own."""
    unused_tokens: tuple[int, ...] = ()
    """Ids that get no weight; of kind ``token_weights`` alone."""
    num_logs: Literal[1, 2] = 1
    """How often log(1 + x) is taken of a logit above 0; of kind ``mlm``, like the rest."""
    hidden_act: str = "gelu"
    norm_eps: float = 1e-12
    is_tied: bool = True
    """Whether the output matrix is the embedding's."""
