"""What an `Embedder` gives besides dense rows, and several outputs of one pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from hotbed.bulk.loaded import LoadedModel
from hotbed.bulk.windows import WINDOW_INPUTS
from hotbed.checkpoint.records import MultiVectorHead, Prompts
from hotbed.core.errors import ErrorCode, HotbedError, invalid, shift_input_index
from hotbed.core.output import OUTPUT_KINDS, OutputDtype, OutputKind, OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.rows import RowSet
from hotbed.rose.engine import RoseEngine
from hotbed.rose.lazy_tensor import LazyTensor
from hotbed.text.multi_vector import filled_up, limited, without_skipped
from hotbed.text.prompts import InputType, resolve_prompt
from hotbed.text.split import split
from hotbed.text.tokenizer import EncodeOptions, Tokenizer

_STEPS_IN_FLIGHT = 2
# A SPLADE's step holds a float for every id of the vocabulary and sequence.
_MAX_STEP_FLOATS = 1 << 25

SparseRow = dict[int, float]
"""Weight by token id, ids rising, weights above 0."""


class MoreOutputs(LoadedModel):
    """Base of `Embedder`."""

    _tokenizer: Tokenizer
    _prompts: Prompts
    _multi_vector: MultiVectorHead | None

    @overload
    def embed_tokens(self, texts: str, **options: Any) -> NDArray[Any]: ...
    @overload
    def embed_tokens(self, texts: Sequence[str], **options: Any) -> list[NDArray[Any]]: ...
    def embed_tokens(
        self, texts: str | Sequence[str], **options: Any
    ) -> NDArray[Any] | list[NDArray[Any]]:
        """The model's final state of every token, special tokens and prompt included.

        Args:
            texts: one text or several.
            options: as of `embed_outputs`.

        Returns:
            [tokens, dimensions] for one text, a list of such for a sequence; not normalised unless
            asked for.

        Raises:
            HotbedError: as of `Embedder.embed`.
        """
        if isinstance(texts, str):
            return self.embed_tokens([texts], **options)[0]
        made: list[NDArray[Any]] = self.embed_outputs(texts, ("tokens",), **options)["tokens"]
        return made

    @overload
    def embed_multi_vector(self, texts: str, **options: Any) -> NDArray[Any]: ...
    @overload
    def embed_multi_vector(self, texts: Sequence[str], **options: Any) -> list[NDArray[Any]]: ...
    def embed_multi_vector(
        self, texts: str | Sequence[str], **options: Any
    ) -> NDArray[Any] | list[NDArray[Any]]:
        """Vectors for late interaction (ColBERT, bge-m3), to compare by MaxSim.

        Give ``input_type="query"`` or ``"document"``: models that read them differently have
        prompts and limits for both, and leave the vectors of some tokens of documents out.

        Args:
            texts: one text or several.
            options: as of `embed_outputs`.

        Returns:
            [vectors, dimensions] for one text, a list of such for a sequence.

        Raises:
            HotbedError: as of `Embedder.embed`; INVALID_INPUT if the model has no such output.
        """
        if isinstance(texts, str):
            return self.embed_multi_vector([texts], **options)[0]
        made = self.embed_outputs(texts, ("multi_vector",), **options)
        vectors: list[NDArray[Any]] = made["multi_vector"]
        return vectors

    @overload
    def embed_sparse(self, texts: str, **options: Any) -> SparseRow: ...
    @overload
    def embed_sparse(self, texts: Sequence[str], **options: Any) -> list[SparseRow]: ...
    def embed_sparse(
        self, texts: str | Sequence[str], **options: Any
    ) -> SparseRow | list[SparseRow]:
        """Weights of token ids (SPLADE, bge-m3), to compare by their dot product.

        Args:
            texts: one text or several.
            options: as of `embed_outputs`, without `dimensions`, `output_dtype` and `normalize`.

        Returns:
            A dict of weights by token id for one text, a list of them for a sequence.

        Raises:
            HotbedError: as of `Embedder.embed`; INVALID_INPUT if the model has no such output.
        """
        if isinstance(texts, str):
            return self.embed_sparse([texts], **options)[0]
        made: list[SparseRow] = self.embed_outputs(texts, ("sparse",), **options)["sparse"]
        return made

    def embed_outputs(
        self,
        texts: Sequence[str],
        outputs: Sequence[OutputKind] = ("dense", "sparse", "multi_vector"),
        *,
        input_type: InputType | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        output_dtype: str = "float32",
        normalize: bool | None = None,
        truncate: bool = False,
        truncation_side: Literal["left", "right"] = "right",
    ) -> dict[OutputKind, Any]:
        """Several outputs of one pass over the model, as bge-m3 gives them.

        Args:
            texts: as for `Embedder.embed`.
            outputs: which; `info.widths` has those of the model.
            input_type: picks the model's prompt for such inputs, and what late interaction does
                to them.
            prompt_name: picks a prompt of the model by name.
            dimensions: leading dimensions to keep of every vector; None keeps all.
            output_dtype: of every vector; as for `Embedder.embed`.
            normalize: L2-normalise every vector; None does what belongs to each output.
            truncate: cut texts that are too long instead of refusing them.
            truncation_side: the end that is cut.

        Returns:
            By output: dense [texts, row width]; tokens and multi_vector a list of [rows, row
            width]; sparse a list of dicts, weight by token id.

        Raises:
            HotbedError: as of `Embedder.embed`; INVALID_INPUT for an output that the model has not.
        """
        if isinstance(texts, str):
            raise invalid("texts must be a list of texts", "texts")
        specs = self._specs(outputs, dimensions, output_dtype, normalize)
        options = EncodeOptions(
            prefix=resolve_prompt(self._prompts, prompt_name=prompt_name, input_type=input_type),
            truncate=truncate,
            truncation_side=truncation_side,
        )
        if self._multi_vector is not None and "multi_vector" in outputs:
            options = limited(options, self._multi_vector, input_type, self._tokenizer.max_tokens)
        made: dict[OutputKind, list[Any]] = {spec.kind: [] for spec in specs}
        for start in range(0, len(texts), WINDOW_INPUTS):
            try:
                batch = self._tokenizer.encode(texts[start : start + WINDOW_INPUTS], options).batch
                if self._multi_vector is not None and "multi_vector" in made:
                    batch = filled_up(batch, self._multi_vector, input_type)
                sets = _compute(self._engine, batch, specs)
            except HotbedError as error:
                raise shift_input_index(error, start) from None
            for spec, made_here in zip(specs, sets, strict=True):
                rows = made_here
                if spec.kind == "multi_vector" and self._multi_vector is not None:
                    rows = without_skipped(made_here, batch, self._multi_vector, input_type)
                made[spec.kind] += _as_asked(rows, spec)
        if "dense" in made:
            width = self.info.row_width(specs[[s.kind for s in specs].index("dense")])
            empty = np.empty((0, width), dtype=OutputDtype(output_dtype).numpy)
            return {**made, "dense": np.stack(made["dense"]) if made["dense"] else empty}
        return {**made}

    def _specs(
        self,
        outputs: Sequence[OutputKind],
        dimensions: int | None,
        dtype: str,
        normalize: bool | None,
    ) -> list[OutputSpec]:
        if not outputs or isinstance(outputs, str) or len(set(outputs)) < len(outputs):
            raise invalid("outputs must name one or more outputs, each once", "outputs")
        specs = []
        for kind in outputs:
            if kind not in OUTPUT_KINDS:
                raise invalid(f"outputs must be among {', '.join(OUTPUT_KINDS)}", "outputs")
            self.info.check_output(kind)
            specs.append(
                OutputSpec(kind=kind)
                if kind == "sparse"
                else self._spec(dimensions, dtype, normalize, kind)
            )
        if list(outputs) == ["sparse"] and (
            dimensions is not None or dtype != "float32" or normalize is not None
        ):
            raise invalid(
                "a sparse output has one form: dimensions, output_dtype and normalize do not apply",
                "outputs",
            )
        return specs

    def _spec(
        self,
        dimensions: int | None,
        dtype: str,
        normalize: bool | None,
        kind: OutputKind = "dense",
    ) -> OutputSpec:
        try:
            output_dtype = OutputDtype(dtype)
        except ValueError:
            names = ", ".join(member.value for member in OutputDtype)
            raise invalid(f"output_dtype must be one of {names}", "output_dtype") from None
        native = self.info.widths[kind]
        if dimensions is not None and not 1 <= dimensions <= native:
            raise invalid(f"dimensions must be 1 to {native}, got {dimensions}", "dimensions")
        if output_dtype.is_packed and (dimensions or native) % 8:
            raise invalid("dimensions must be a multiple of 8 for packed bits", "dimensions")
        return OutputSpec(dimensions or 0, output_dtype, normalize, kind=kind)


def _as_asked(rows: RowSet, spec: OutputSpec) -> list[Any]:
    """One element a text."""
    if spec.kind == "dense":
        return list(rows.rows)
    if spec.kind != "sparse":
        return rows.split()
    return [
        dict(zip(part["token"][:, 0].tolist(), part["weight"][:, 0].tolist(), strict=True))
        for part in rows.split()
    ]


def _compute(engine: RoseEngine, batch: RaggedBatch, specs: Sequence[OutputSpec]) -> list[RowSet]:
    """A set for each spec, in the order of the batch; its sequences run longest first."""
    order = np.argsort(-batch.lengths, kind="stable")
    budget = max_sequences = engine.default_step_tokens
    if any(spec.kind == "sparse" for spec in specs):
        max_sequences = max(1, min(budget, _MAX_STEP_FLOATS // engine.info.widths["sparse"]))
    in_flight: deque[tuple[NDArray[np.intp], LazyTensor]] = deque()
    done: list[list[RowSet]] = [[] for _ in specs]

    def submit(indexes: NDArray[np.intp]) -> None:
        segments = [OutputSegment(0, len(indexes), spec) for spec in specs]
        in_flight.append((indexes, engine.step(batch.select(indexes), segments)))

    def collect() -> None:
        indexes, pending = in_flight.popleft()
        result = pending.wait()
        if not result.finite.all():
            if len(indexes) > 1 and not engine.isolates_nan:
                # It may be the fault of one sequence that others have such values: each runs alone.
                behind = list(in_flight)
                in_flight.clear()
                for index in indexes:
                    submit(np.array([index]))
                    collect()
                in_flight.extend(behind)
                return
            raise HotbedError(
                ErrorCode.INTERNAL,
                "the model gave values that are not finite",
                param=f"input[{int(indexes[np.argmin(result.finite)])}]",
            )
        for number, sets in enumerate(done):
            sets.append(result.row_set(number))

    steps = split(batch.lengths[order], max_tokens=budget, max_sequences=max_sequences)
    for start, stop in steps:
        submit(order[start:stop])
        if len(in_flight) == _STEPS_IN_FLIGHT:
            collect()
    while in_flight:
        collect()
    back = np.argsort(order, kind="stable")
    return [_reordered(RowSet.concatenate(sets), back) for sets in done]


def _reordered(rows: RowSet, order: NDArray[np.intp]) -> RowSet:
    if rows.counts is None:
        return RowSet(rows.rows[order])
    offsets = rows.offsets()
    counts = rows.counts[order]
    ends = np.cumsum(counts)
    take = np.arange(int(counts.sum())) + np.repeat(offsets[:-1][order] - ends + counts, counts)
    return RowSet(rows.rows[take], counts)
