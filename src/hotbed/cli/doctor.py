"""`hotbed doctor`."""

from __future__ import annotations

from pathlib import Path

from hotbed.cli.application import app, log_to_stderr
from hotbed.core.defaults import DEFAULT_MODEL


@app.command
def doctor(
    model: str | None = None,
    *,
    calibrate: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    invariant: bool = False,
    attention: str = "auto",
    kernel_dir: Path | None = None,
    threads: int | None = None,
    offline: bool | None = None,
    json: bool = False,
) -> int:
    """Say what works on this machine, each claim proved by a run, and what is missing.

    Exit code 0 if a model can be served, else 1.

    Args:
        model: folder, hub name or installed model to load and run too.
        calibrate: measure which step size suits the model (unset: the default model) on this
            device, and keep it: replicas take it from then on. Takes a minute.
        device: auto (a GPU if there is one), cpu, cuda or cuda:N.
        dtype: type of the model's compute: auto, float32, bfloat16 or, on a GPU, fp8.
        invariant: a text's row is the same bytes alone and in every batch.
        attention: backend of the model: auto, sdpa, varlen or fa4.
        kernel_dir: folder of kernels built ahead of time.
        threads: CPU threads of a step; calibrate with as many as a replica will have.
        offline: never use the network to find the model; unset: as the hub library is set.
        json: print one JSON object instead of text.
    """
    from hotbed.doctor.run import run  # noqa: PLC0415

    log_to_stderr("warning")
    return run(
        model or (DEFAULT_MODEL if calibrate else None),
        calibrating=calibrate,
        device=device,
        dtype=dtype,
        invariant=invariant,
        attention=attention,
        kernel_dir=kernel_dir,
        num_threads=threads,
        offline=offline,
        as_json=json,
    )
