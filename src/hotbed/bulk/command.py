"""`hotbed embed --out`: puts the pieces of a job together."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import TextIO

from hotbed.bulk.endpoint import EndpointBackend
from hotbed.bulk.job import run_job
from hotbed.bulk.local import LocalModel, ModelOptions
from hotbed.bulk.options import JobOptions
from hotbed.bulk.runner import InProcess
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
    if options.engine == "ray":
        _on_ray(given, options, model_options, stream)
        return
    model = LocalModel(model_options)
    run_job(given, options, model.recipe, InProcess(model.load_backend), output=stream)


def _on_ray(
    inputs: Sequence[str], options: JobOptions, model_options: ModelOptions, stream: TextIO
) -> None:
    if importlib.util.find_spec("ray") is None:
        raise invalid("--engine ray needs Ray: pip install 'hotbed[ray]'")
    from hotbed.bulk.ray_plan import connected, make_plan  # noqa: PLC0415
    from hotbed.bulk.ray_runner import RayRunner  # noqa: PLC0415

    with connected(options.address) as nodes:
        plan, model_options = make_plan(nodes, model_options, options.workers)
        runner = RayRunner(model_options, plan)
        try:
            run_job(inputs, options, runner.recipe, runner, output=stream)
        finally:
            runner.close()


def _through_endpoint(
    url: str,
    inputs: Sequence[str],
    options: JobOptions,
    model_options: ModelOptions,
    stream: TextIO,
) -> None:
    defaults = ModelOptions(model=model_options.model)
    for name in (
        "device",
        "dtype",
        "invariant",
        "output_dtype",
        "threads",
        "offline",
        "attention",
        "kernel_dir",
    ):
        if getattr(model_options, name) != getattr(defaults, name):
            option = name.replace("_", "-")
            raise invalid(
                f"--{option} does not go with --endpoint: the server computes, in float32", name
            )
    fields = ("model", "input_type", "prompt_name", "dimensions", "normalize")
    backend = EndpointBackend(
        url,
        {name: getattr(model_options, name) for name in fields},
        concurrency=options.concurrency,
    )
    try:
        runner = InProcess(lambda _: (backend, 0))
        run_job(inputs, options, backend.recipe, runner, output=stream)
    finally:
        backend.close()
