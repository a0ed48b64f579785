"""Commands on files of vectors: `hotbed embed --out`, `hotbed search` and `hotbed push`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from hotbed.bulk.options import JobOptions
from hotbed.cli.application import app, log_to_stderr
from hotbed.core.errors import invalid


def embed_files(inputs: Sequence[str], job: JobOptions, **model_options: Any) -> int:
    """What `hotbed embed --out` does; `model_options` are the fields of bulk's `ModelOptions`."""
    _needs_pyarrow("--out")
    from hotbed.bulk import command  # noqa: PLC0415
    from hotbed.bulk.local import ModelOptions  # noqa: PLC0415

    log_to_stderr("warning")
    command.embed_files(inputs, job, ModelOptions(**model_options))
    return 0


@app.command
def search(
    folder: Path,
    query: str,
    /,
    *,
    k: Annotated[int, Parameter(name=["-k", "--k"])] = 10,
    model: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    invariant: bool = False,
    threads: int | None = None,
    offline: bool | None = None,
) -> int:
    """Look for the rows nearest to a query in a folder that `hotbed embed --out` wrote.

    Compares with every vector; meant for a look at the result, not for serving. Prints a JSON line
    with ``score``, ``file``, ``row`` and ``columns`` a row, best first.

    Args:
        folder: what --out was.
        query: a text.
        k: how many rows.
        model: where the model is now; unset: where it was for the job.
        device: auto (a GPU if there is one), cpu, cuda or cuda:N.
        dtype: type of the model's compute; as for the job.
        invariant: as for the job.
        threads: CPU threads; unset: torch's own default.
        offline: never use the network to find the model; unset: as the hub library is set.
    """
    import dataclasses  # noqa: PLC0415

    import orjson  # noqa: PLC0415

    _needs_pyarrow("search")
    from hotbed.bulk.search import model_of, search  # noqa: PLC0415

    known = model_of(folder)
    options = dataclasses.replace(
        known,
        model=model or known.model,
        device=device,
        dtype=dtype,
        invariant=invariant,
        threads=threads,
        offline=offline,
    )
    for hit in search(folder, query, k, options):
        line = orjson.dumps(hit, default=str, option=orjson.OPT_APPEND_NEWLINE)
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return 0


@app.command
def push(
    folder: Path,
    /,
    *,
    to: Literal["qdrant", "pgvector", "lancedb"],
    url: str,
    table: str = "vectors",
) -> int:
    """Copy what `hotbed embed --out` wrote into a vector store; again, it is there once.

    Args:
        folder: what --out was; the job must be finished.
        to: which store.
        url: where it is: a folder (Qdrant's local mode, LanceDB), or what the store's client takes,
            such as http://localhost:6333 or postgresql://user@host/database.
        table: name of the table or collection; made if it is not there.
    """
    _needs_pyarrow("push")
    from hotbed.bulk.push import push as push_rows  # noqa: PLC0415

    pushed, there = push_rows(folder, to, url, table)
    sys.stderr.write(f"{pushed:,} rows pushed; {table} has {there:,} rows\n")
    return 0


def _needs_pyarrow(what: str) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise invalid(f"{what} needs pyarrow: pip install 'hotbed[bulk]'")
