"""`hotbed embed --out`: puts the pieces of a job together."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from hotbed.bulk.backend import Backend
from hotbed.bulk.endpoint import EndpointBackend
from hotbed.bulk.job import run_job
from hotbed.bulk.local import LocalModel, ModelOptions
from hotbed.bulk.options import JobOptions
from hotbed.bulk.sources import STDIN
from hotbed.core.errors import invalid


def embed_files(
    inputs: Sequence[str],
    options: JobOptions,
    model_options: ModelOptions,
    *,
    output: TextIO | None = None,
) -> None:
    """Run or resume a job.

    Args:
        inputs: files, folders, globs; none: standard input.
        options: of the job.
        model_options: of the model.
        output: for progress and the summary; None: standard error.

    Raises:
        HotbedError: naming the option, input or row at fault.
    """
    stream = output or sys.stderr
    given = list(inputs) or [STDIN]
    if options.endpoint is not None:
        _through_endpoint(options.endpoint, given, options, model_options, stream)
        return
    model = LocalModel(model_options)

    def load(step_tokens: int) -> tuple[Backend, int]:
        engine = model.load()
        step_tokens = step_tokens or engine.default_step_tokens
        return model.backend(engine, step_tokens), step_tokens

    run_job(given, options, model.recipe, load, output=stream)


def _through_endpoint(
    url: str,
    inputs: Sequence[str],
    options: JobOptions,
    model_options: ModelOptions,
    stream: TextIO,
) -> None:
    defaults = ModelOptions(model=model_options.model)
    for name in ("device", "dtype", "invariant", "output_dtype", "threads", "offline"):
        if getattr(model_options, name) != getattr(defaults, name):
            option = name.replace("_", "-")
            raise invalid(f"--{option} does not go with --endpoint, which gives float32", name)
    fields = ("model", "input_type", "prompt_name", "dimensions", "normalize")
    backend = EndpointBackend(
        url,
        {name: getattr(model_options, name) for name in fields},
        concurrency=options.concurrency,
    )
    try:
        run_job(inputs, options, backend.recipe, lambda _: (backend, 0), output=stream)
    finally:
        backend.close()
