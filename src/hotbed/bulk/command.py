"""`hotbed embed --out`: puts the pieces of a job together."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from hotbed.bulk.backend import Backend
from hotbed.bulk.job import run_job
from hotbed.bulk.local import LocalModel, ModelOptions
from hotbed.bulk.options import JobOptions
from hotbed.bulk.sources import STDIN


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
    model = LocalModel(model_options)

    def load(step_tokens: int) -> tuple[Backend, int]:
        engine = model.load()
        step_tokens = step_tokens or engine.default_step_tokens
        return model.backend(engine, step_tokens), step_tokens

    run_job(list(inputs) or [STDIN], options, model.recipe, load, output=output or sys.stderr)
