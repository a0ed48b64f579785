"""What a replica says of the model it serves; what Ivy needs to check requests without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hotbed.core.errors import invalid

if TYPE_CHECKING:  # settings and the command line stand on this file and need no numpy
    from hotbed.core.output import OutputKind, OutputSpec

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
        dimensions: native width of a dense row (of the model's states, if it gives no dense rows);
            of a model that scores, its number of labels.
        max_tokens: longest sequence the model takes, special tokens included.
        vocab_size: token ids are 0 to vocab_size - 1.
        pooling: ``mean``, ``cls`` or ``last``; ``none`` if the model gives no dense rows.
        normalize: whether rows are L2-normalised when a request does not say.
        dtype: compute type, e.g. ``float32``.
        device: e.g. ``cpu`` or ``cuda:0``.
        fingerprint: short hash over weights, configuration, pooling, normalisation and compute
            dtype; two replicas with the same fingerprint give the same vectors.
        labels: names of a scoring model's outputs, in the order of a row.
        activation: what makes scores of a scoring model's logits.
        token_types: 2 if a sequence may hold a second text whose tokens the model tells apart
            (`RaggedBatch.pair_starts`), else 1.
        outputs: what an embedding model gives, each with its native width: dimensions of a vector,
            or the number of token ids that a sparse row can name. Empty: dense rows alone.
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
    outputs: tuple[tuple[OutputKind, int], ...] = ()

    @property
    def widths(self) -> dict[OutputKind, int]:
        """Native width of each output that the model gives; of a model that scores none."""
        if self.task == "score":
            return {}
        return dict(self.outputs) if self.outputs else {"dense": self.dimensions}

    @property
    def first_output(self) -> OutputKind:
        """What the model gives to whoever has no wishes; of a model that scores its scores."""
        return self.outputs[0][0] if self.outputs and self.task == "embed" else "dense"

    def row_width(self, spec: OutputSpec) -> int:
        """Elements in a row of this spec, of an output that the model has; `also` is left out."""
        if spec.kind == "dense":
            return spec.row_width(self.dimensions)
        return spec.row_width(self.widths[spec.kind])

    def answer_bytes(self, spec: OutputSpec, num_tokens: int, num_sequences: int) -> int:
        """Most bytes that the rows of such an output come to, its `also` left out.

        A sequence cannot name a token id twice, so a sparse one has at most an entry for each id.
        """
        if spec.kind == "sparse":
            num_rows = num_sequences * self.widths["sparse"]
        else:
            num_rows = num_sequences if spec.kind == "dense" else num_tokens
        return num_rows * self.row_width(spec) * spec.row_dtype.itemsize

    def check_output(self, kind: OutputKind) -> None:
        """Whether the model gives such an output.

        Raises:
            HotbedError: INVALID_INPUT naming the outputs it has.
        """
        if self.task == "score":
            if kind != "dense":
                raise invalid(f"the model scores; it has no {kind} output", "model")
        elif kind not in self.widths:
            raise invalid(
                f"the model has no {kind} output; its outputs are: {', '.join(self.widths)}",
                "model",
            )

    def check_spans(self) -> None:
        """Whether rows of spans make sense: a span's row is a mean, so the model's must be one.

        Raises:
            HotbedError: INVALID_INPUT naming the model's pooling.
        """
        if self.task == "embed":
            self.check_output("dense")
        else:
            raise invalid("rows of chunks (spans) need a model that embeds; this one scores")
        if self.pooling != "mean":
            raise invalid(
                f"the model pools by {self.pooling!r}; rows of chunks (spans) need a model that"
                " pools by 'mean'"
            )
