"""Computes a job's windows with a model in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hotbed.bulk.ahead import ahead
from hotbed.bulk.backend import Done
from hotbed.bulk.policies import Counts, Policies
from hotbed.bulk.prepare import Prepared, Preparer
from hotbed.bulk.read import Window
from hotbed.bulk.recipe import Recipe, make_recipe
from hotbed.bulk.steps import SequenceError, Steps
from hotbed.checkpoint.fingerprint import fingerprint
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.cache_folder import default_cache_folder
from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.core.step import Engine, EngineDeadError, is_out_of_memory
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.compute import resolve_compute
from hotbed.rose.device import resolve_device
from hotbed.rose.engine import RoseEngine
from hotbed.text.options import EncodeOptions
from hotbed.text.prompts import resolve_prompt
from hotbed.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and what its rows shall be; as for `Embedder` and its `embed`."""

    model: str
    device: str = "auto"
    dtype: str = "auto"
    invariant: bool = False
    input_type: Literal["query", "document"] | None = None
    prompt_name: str | None = None
    dimensions: int | None = None
    output_dtype: str = "float32"
    normalize: bool | None = None
    threads: int | None = None
    offline: bool | None = None
    attention: str = "auto"
    kernel_dir: Path | None = None


class LocalModel:
    """A model whose files were read; `load` brings it onto the device.

    Raises:
        HotbedError: INVALID_INPUT naming the option, or what is wrong with the model.
    """

    def __init__(self, options: ModelOptions) -> None:
        checkpoint = load_checkpoint(options.model, offline=options.offline, task="embed")
        if not checkpoint.has_dense:
            kinds = ", ".join(kind for kind, _ in checkpoint.outputs)
            raise invalid(
                f"a job writes dense rows, which the model has not; its outputs are: {kinds}",
                "model",
            )
        native = checkpoint.dimensions  # Dense modules change it
        dimensions = options.dimensions or native
        if options.dimensions is not None and not 1 <= options.dimensions <= native:
            raise invalid(
                f"dimensions must be 1 to {native}, got {options.dimensions}", "dimensions"
            )
        output_dtype = OutputDtype(options.output_dtype)
        if output_dtype.is_packed and dimensions % 8:
            raise invalid("dimensions must be a multiple of 8 for packed bits", "dimensions")
        prompt = resolve_prompt(
            checkpoint.prompts, prompt_name=options.prompt_name, input_type=options.input_type
        )
        self._checkpoint = checkpoint
        self._options = options
        self._encode = EncodeOptions(prefix=prompt)
        self._spec = OutputSpec(options.dimensions or 0, output_dtype, options.normalize)
        self.tokenizer = Tokenizer.load(
            checkpoint.tokenizer,
            max_tokens=checkpoint.max_tokens,
            vocab_size=checkpoint.config.vocab_size,
        )
        device = resolve_device(options.device)
        compute = resolve_compute(options.dtype, device, invariant=options.invariant).name
        self._fingerprint = fingerprint(checkpoint, compute)
        normalize = options.normalize
        self.recipe: Recipe = self._recipe(
            prompt,
            dimensions,
            output_dtype.value,
            checkpoint.pooling.normalize if normalize is None else normalize,
        )

    def _recipe(self, prompt: str, dimensions: int, dtype: str, normalize: bool) -> Recipe:
        return make_recipe(
            model=self._options.model,
            model_fingerprint=self._fingerprint,
            tokenizer_fingerprint=self.tokenizer.fingerprint,
            prompt=prompt,
            dimensions=dimensions,
            dtype=dtype,
            normalize=normalize,
        )

    def makes(self, recipe: Recipe, *, asked_of_server: bool) -> bool:
        """Whether vectors of this model have the recipe's fingerprint.

        Args:
            recipe: of a job.
            asked_of_server: of `--endpoint`, which knows what it asked for, not the prompt's words
                nor what the model's own way to normalise is. The fingerprint tells which it was.
        """
        prompts, normalize = {recipe.prompt}, {recipe.normalize}
        if asked_of_server:
            known = self._checkpoint.prompts
            prompts |= {"", *known.by_name.values()}
            normalize |= {self._checkpoint.pooling.normalize}
        return any(
            self._recipe(prompt, recipe.dimensions, recipe.dtype, norm).fingerprint
            == recipe.fingerprint
            for prompt in prompts
            for norm in normalize
        )

    def embed_one(self, text: str) -> NDArray[Any]:
        """The row [row width] of one text, which is cut if it is too long; loads the model.

        Raises:
            HotbedError: INVALID_INPUT if it holds no text.
        """
        options = dataclasses.replace(self._encode, truncate=True)
        batch = self.tokenizer.encode([text], options).batch
        engine = self.load()
        try:
            done = engine.step(batch, (OutputSegment(0, 1, self._spec),)).wait()
        finally:
            engine.close()
        row: NDArray[Any] = done.rows[0][0]
        return row

    def load(self) -> RoseEngine:
        """The engine; takes as long as the weights take."""
        options = self._options
        return RoseEngine.load(
            self._checkpoint,
            device=options.device,
            dtype=options.dtype,
            invariant=options.invariant,
            attention=AttentionSettings(options.attention, options.kernel_dir),
            num_threads=options.threads,
            cache_folder=default_cache_folder(),
        )

    def load_backend(self, step_tokens: int) -> tuple[LocalBackend, int]:
        """What computes, on the device, and its step size: `step_tokens`, or if 0 the engine's."""
        engine = self.load()
        step_tokens = step_tokens or engine.default_step_tokens
        return self.backend(engine, step_tokens), step_tokens

    def backend(self, engine: Engine, step_tokens: int) -> LocalBackend:
        """What computes with it."""
        return LocalBackend(engine, self.tokenizer, self._encode, self._spec, step_tokens)


class LocalBackend:
    """Implements `Backend`: a thread reads, one tokenises, this one feeds the device."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        options: EncodeOptions,
        spec: OutputSpec,
        step_tokens: int,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._options = options
        self._steps = Steps(engine, spec, step_tokens)
        self.row_width = spec.row_width(engine.info.dimensions)
        self.row_dtype = spec.dtype.numpy

    def run(
        self, windows: Iterator[Window], policies: Policies, *, text: str, dedupe: bool
    ) -> Generator[Done, None, None]:
        """See `Backend`."""
        preparer = Preparer(self._tokenizer, self._options, policies, text=text, dedupe=dedupe)
        read = ahead(windows, depth=1, name="read")
        prepared = ahead(map(preparer.prepare, read), depth=1, name="tokenize")
        earlier = _Earlier()
        try:
            for item, rows, finite in self._steps.compute(prepared, lambda item: item.batch):
                if dedupe:
                    earlier.add(item, rows, finite)
                    yield _done(item, *earlier.rows_of(item), policies)
                else:
                    yield _done(item, rows, finite, policies)
        except SequenceError as error:
            raise _failed(error, policies) from error
        except EngineDeadError as error:
            raise HotbedError(
                ErrorCode.INTERNAL, f"the device is gone ({error}); --resume goes on in a new run"
            ) from error
        finally:
            # From the last to the first: each waits for its thread.
            prepared.close()
            read.close()

    def idle_s(self) -> float:
        """See `Backend`."""
        return self._steps.idle_s

    def close(self) -> None:
        """See `Backend`."""
        self._engine.close()


class _Earlier:
    """The rows of a part so far, for texts that occur again in it."""

    def __init__(self) -> None:
        self._part = -1
        self._windows: list[tuple[int, NDArray[Any], NDArray[np.bool_]]] = []

    def add(self, item: Prepared, rows: NDArray[Any], finite: NDArray[np.bool_]) -> None:
        if item.window.part != self._part:
            self._part, self._windows = item.window.part, []
        self._windows.append((item.first, rows, finite))

    def rows_of(self, item: Prepared) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        last = self._windows[-1]
        rows = np.empty((len(item.gather), last[1].shape[1]), dtype=last[1].dtype)
        finite = np.empty(len(item.gather), dtype=np.bool_)
        for first, window_rows, window_finite in self._windows:
            here = (item.gather >= first) & (item.gather < first + len(window_rows))
            rows[here] = window_rows[item.gather[here] - first]
            finite[here] = window_finite[item.gather[here] - first]
        return rows, finite


def _failed(error: SequenceError, policies: Policies) -> HotbedError:
    item: Prepared = error.item
    place = item.take[int(np.flatnonzero(item.gather == item.first + error.index)[0])]
    block = item.window.rows
    source, line = policies.place(block.first_row + int(block.good[place]))
    cause = error.__cause__
    assert cause is not None, "a failed step without an error: this is a bug"
    what = "runs out of memory" if is_out_of_memory(cause) else f"fails ({type(cause).__name__})"
    return HotbedError(
        ErrorCode.INTERNAL,
        f"{source}, line {line}: the engine {what} on this text of {error.num_tokens} tokens alone",
    )


def _done(
    item: Prepared, rows: NDArray[Any], finite: NDArray[np.bool_], policies: Policies
) -> Done:
    """Put the window together, without rows that are not finite."""
    block = item.window.rows
    problems = item.problems
    take, spans = item.take, item.spans
    counts = Counts(tokens=item.batch.num_tokens)
    if not finite.all():
        # All parts of a text go if one of them has no row.
        bad = np.unique(take[~finite])
        problems = problems + [
            policies.bad_row(
                block.first_row + int(block.good[place]),
                "not_finite",
                "the model gave a row that is not finite",
            )
            for place in bad.tolist()
        ]
        kept = ~np.isin(take, bad)
        take, rows, spans = take[kept], rows[kept], None if spans is None else spans[kept]
    for problem in problems:
        counts.add_problem(problem)
    counts.read = len(block.good) + len(block.problems)
    counts.written = len(rows)
    counts.reused = len(item.gather) - item.batch.num_sequences
    return Done(item.window, block.table.take(take), spans, rows, problems, counts)
