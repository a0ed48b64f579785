"""Jobs over a tiny model, for the tests of bulk embedding."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hotbed.bulk.command import embed_files
from hotbed.bulk.local import ModelOptions
from hotbed.bulk.options import JobOptions

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs"]


def texts(count: int, *, seed: int = 0, max_words: int = 15) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, max_words))) for _ in range(count)]


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def embed(model: Path, inputs: Path | list[str], out: Path, **options: Any) -> str:
    """Run a job; what it printed. `options` of the model go by the names in `ModelOptions`."""
    model_names = set(ModelOptions.__dataclass_fields__)
    of_model = {name: options.pop(name) for name in sorted(model_names & options.keys())}
    output = io.StringIO()
    given = inputs if isinstance(inputs, list) else [str(inputs)]
    embed_files(
        given,
        JobOptions(out=out, **options),
        ModelOptions(model=str(model), threads=1, **of_model),
        output=output,
    )
    return output.getvalue()


def result(out: Path) -> dict[str, bytes]:
    """Names and bytes of all that a finished job leaves but what tells of its runs."""
    return {
        path.name: path.read_bytes()
        for path in out.iterdir()
        if not path.name.startswith(("_report", "_lock"))
    }


def killed_at(tick: int, job: Callable[[], object]) -> int:
    """Run a job in this process and kill it at the tick-th time that it touches disk or device.

    Ticks lie before and after each step, row group, flush and rename. Returns the number of ticks
    of a job that lived to its end.
    """
    from hotbed.bulk.steps import Steps
    from hotbed.bulk.write import PartWriter

    ticks = 0

    def count() -> None:
        nonlocal ticks
        ticks += 1
        if ticks == tick:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            count()
            value = function(*args, **kwargs)
            count()
            return value

        return call

    for owner, name in ((os, "replace"), (os, "fsync"), (PartWriter, "write"), (Steps, "_submit")):
        setattr(owner, name, counted(getattr(owner, name)))
    job()
    return ticks
