"""What a replica says of the model it serves; what Ivy needs to check requests without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hotbed.core.errors import invalid

Task = Literal["embed", "score"]
"""``embed``: a row is a text's vector. ``score``: a row is a value for each label of the model;
with one label and pairs of query and document that is a reranker, with several a classifier."""

Activation = Literal["none", "sigmoid", "softmax"]
"""What a model that scores does to its logits, over the labels of a row."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts of one loaded model.

    Attributes:
        name: the name it was asked for by, e.g. ``sentence-transformers/all-MiniLM-L6-v2``.
        task: what it does.
        architecture: family in the registry, e.g. ``bert``.
        dimensions: native width of a row; of a model that scores, its number of labels.
        max_tokens: longest sequence the model takes, special tokens included.
        vocab_size: token ids are 0 to vocab_size - 1.
        pooling: ``mean``, ``cls`` or ``last``.
        normalize: whether rows are L2-normalised when a request does not say.
        dtype: compute type, e.g. ``float32``.
        device: e.g. ``cpu`` or ``cuda:0``.
        fingerprint: short hash over weights, configuration, pooling, normalisation and compute
            dtype; two replicas with the same fingerprint give the same vectors.
        labels: names of a scoring model's outputs, in the order of a row.
        activation: what makes scores of a scoring model's logits.
        token_types: 2 if a sequence may hold a second text whose tokens the model tells apart
            (`RaggedBatch.pair_starts`), else 1.
    """

    name: str
    task: Task
    architecture: str
    dimensions: int
    max_tokens: int
    vocab_size: int
    pooling: str
    normalize: bool
    dtype: str
    device: str
    fingerprint: str
    labels: tuple[str, ...] = ()
    activation: Activation = "none"
    token_types: int = 1

    def check_spans(self) -> None:
        """Whether rows of spans make sense: a span's row is a mean, so the model's must be one.

        Raises:
            HotbedError: INVALID_INPUT naming the model's pooling.
        """
        if self.task != "embed":
            raise invalid("rows of chunks (spans) need a model that embeds; this one scores")
        if self.pooling != "mean":
            raise invalid(
                f"the model pools by {self.pooling!r}; rows of chunks (spans) need a model that"
                " pools by 'mean'"
            )
