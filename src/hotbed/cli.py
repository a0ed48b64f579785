"""The `hotbed` command. Options come from the settings records; heavy imports wait for the command.

Exit codes: 0 done, 1 failed, 2 wrong options or a model that can never work.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Group, Parameter

from hotbed import __version__
from hotbed.bulk.options import JobOptions
from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.core.errors import HotbedError, invalid
from hotbed.core.exit_codes import EXIT_CONFIGURATION, EXIT_FAILURE, exit_code
from hotbed.ivy.settings import IvySettings
from hotbed.serve.settings import IVY_FIELDS_OF_SERVE, TULIP_FIELDS_OF_SERVE, ServeSettings
from hotbed.tulip.settings import TulipSettings

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def _one_line(error: CycloptsError) -> str:
    return f"hotbed: {' '.join(str(error).split())}"


def _but(names: frozenset[str]) -> re.Pattern[str]:
    """Matches every field's name but these."""
    return re.compile(f"^(?!({'|'.join(sorted(names))})$)")


app = App(
    name="hotbed",
    help="Serve text-embedding and reranking models as fast as the hardware allows.",
    version=__version__,
    default_parameter=Parameter(negative_iterable=""),
    error_formatter=_one_line,
    result_action="return_value",
)


@app.command
def serve(
    settings: Annotated[ServeSettings, Parameter(name="*")] = ServeSettings(),  # noqa: B008
    *,
    tulip: Annotated[
        TulipSettings,
        Parameter(group=Group("For every replica", sort_key=1), parse=_but(TULIP_FIELDS_OF_SERVE)),
    ] = TulipSettings(),  # noqa: B008
    ivy: Annotated[
        IvySettings,
        Parameter(group=Group("For every worker", sort_key=2), parse=_but(IVY_FIELDS_OF_SERVE)),
    ] = IvySettings(),  # noqa: B008
) -> int:
    """Serve a model on this machine: HTTP workers in front of batching replicas."""
    from hotbed.serve.run import run  # noqa: PLC0415

    return run(settings, tulip, ivy)


@app.command
def tulip(
    settings: Annotated[TulipSettings, Parameter(name="*")] = TulipSettings(),  # noqa: B008
) -> int:
    """Run one batching gRPC server with one model on one device."""
    from hotbed.tulip.__main__ import run  # noqa: PLC0415

    _log_to_stderr(settings.log_level)
    return run(settings)


@app.command
def ivy(
    settings: Annotated[IvySettings, Parameter(name="*")] = IvySettings(),  # noqa: B008
) -> int:
    """Run one HTTP gateway in front of replicas that run already."""
    from hotbed.ivy.__main__ import run  # noqa: PLC0415

    _log_to_stderr("info")
    return run(settings)


@app.command
def embed(
    *texts: str,
    model: str = DEFAULT_MODEL,
    input_type: Literal["query", "document"] | None = None,
    prompt_name: str | None = None,
    dimensions: int | None = None,
    output_dtype: Literal["float32", "float16", "int8", "binary", "ubinary"] = "float32",
    normalize: bool | None = None,
    truncate: bool = False,
    threads: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
    attention: str = "auto",
    kernel_dir: Path | None = None,
    offline: bool | None = None,
    output: Path | None = None,
    job: Annotated[
        JobOptions, Parameter(name="*", group=Group("For files: --out", sort_key=1))
    ] = JobOptions(),  # noqa: B008
) -> int:
    """Embed texts, or with --out whole files, in this process.

    Prints a JSON line ``{"index": 0, "embedding": [...]}`` a text, in their order. With --out it
    reads Parquet, Arrow, JSONL, CSV, lines or text files, and writes Parquet with progress on
    standard error; a job that was stopped goes on with --resume.

    Args:
        texts: what to embed, or with --out files, folders and globs; without any, each line of
            standard input is one text.
        model: folder, hub name or installed model.
        input_type: picks the model's query or document prompt, if it has one.
        prompt_name: picks a prompt of the model by name.
        dimensions: leading dimensions to keep; unset: all.
        output_dtype: type of the numbers; binary and ubinary pack eight dimensions a byte.
        normalize: divide each row by its L2 norm; unset: as the model's files say.
        truncate: cut texts that are too long instead of refusing them.
        threads: CPU threads; unset: torch's own default.
        device: auto (a GPU if there is one), cpu, cuda or cuda:N.
        dtype: type of the model's compute: auto, float32 or bfloat16.
        attention: backend on a GPU: auto, sdpa, varlen or fa4.
        kernel_dir: folder of kernels built ahead of time, for a GPU.
        offline: never use the network to find the model; unset: as the hub library is set.
        output: write one NumPy array [texts, dimensions] to this .npy file instead of printing.
        job: see `JobOptions`.
    """
    import numpy as np  # noqa: PLC0415
    import orjson  # noqa: PLC0415

    from hotbed import Embedder  # noqa: PLC0415

    if job.out is not None:
        if output is not None:
            raise invalid("--output is for texts; files go to the folder --out", "output")
        if truncate:
            raise invalid("--truncate is for texts; for files there is --too-long", "truncate")
        return _embed_files(
            texts,
            job,
            model=model,
            device=device,
            dtype=dtype,
            input_type=input_type,
            prompt_name=prompt_name,
            dimensions=dimensions,
            output_dtype=output_dtype,
            normalize=normalize,
            threads=threads,
            offline=offline,
            attention=attention,
            kernel_dir=kernel_dir,
        )
    inputs = list(texts) or [line.rstrip("\r\n") for line in sys.stdin]
    with Embedder(
        model,
        device=device,
        dtype=dtype,
        num_threads=threads,
        offline=offline,
        attention=attention,
        kernel_dir=kernel_dir,
    ) as embedder:
        rows = embedder.embed(
            inputs,
            input_type=input_type,
            prompt_name=prompt_name,
            dimensions=dimensions,
            output_dtype=output_dtype,
            normalize=normalize,
            truncate=truncate,
        )
    if output is not None:
        with output.open("wb") as file:  # np.save would add .npy to another suffix
            np.save(file, rows)
        return 0
    for index, row in enumerate(rows):
        # float16 is no type of orjson's arrays; as float32 it is written exactly.
        printable = row.astype(np.float32) if row.dtype == np.float16 else row
        line = orjson.dumps(
            {"index": index, "embedding": printable},
            option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE,
        )
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return 0


def _embed_files(inputs: Sequence[str], job: JobOptions, **model_options: Any) -> int:
    _needs_pyarrow("--out")
    from hotbed.bulk.command import embed_files  # noqa: PLC0415
    from hotbed.bulk.local import ModelOptions  # noqa: PLC0415

    _log_to_stderr("warning")
    embed_files(inputs, job, ModelOptions(**model_options))
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


@app.command
def doctor(
    model: str | None = None,
    *,
    calibrate: bool = False,
    device: str = "auto",
    dtype: str = "auto",
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
        dtype: type of the model's compute: auto, float32 or bfloat16.
        attention: backend of the model: auto, sdpa, varlen or fa4.
        kernel_dir: folder of FlashAttention 4 kernels.
        threads: CPU threads of a step; calibrate with as many as a replica will have.
        offline: never use the network to find the model; unset: as the hub library is set.
        json: print one JSON object instead of text.
    """
    from hotbed.doctor.run import run  # noqa: PLC0415

    _log_to_stderr("warning")
    return run(
        model or (DEFAULT_MODEL if calibrate else None),
        calibrating=calibrate,
        device=device,
        dtype=dtype,
        attention=attention,
        kernel_dir=kernel_dir,
        num_threads=threads,
        offline=offline,
        as_json=json,
    )


@app.command
def rerank(
    model: str,
    /,
    *documents: str,
    query: str,
    top_k: int | None = None,
    raw_scores: bool = False,
    instruction: str | None = None,
    truncate: bool = True,
    threads: int | None = None,
    offline: bool | None = None,
) -> int:
    """Rank documents for a query in this process, without a server.

    Prints a JSON line ``{"index": 0, "score": 0.9, "document": "..."}`` a document, best first.

    Args:
        model: folder or hub name of a reranker.
        documents: what to rank; without any, each line of standard input is one document.
        query: what they are ranked for.
        top_k: print only the best so many; unset: all.
        raw_scores: logits, without the model's activation.
        instruction: for models whose template has one; unset: the model's own.
        truncate: cut documents that are too long; else they are refused.
        threads: CPU threads; unset: torch's own default.
        offline: never use the network to find the model; unset: as the hub library is set.
    """
    import orjson  # noqa: PLC0415

    from hotbed import Reranker  # noqa: PLC0415

    inputs = list(documents) or [line.rstrip("\r\n") for line in sys.stdin]
    with Reranker(model, num_threads=threads, offline=offline) as reranker:
        ranked = reranker.rank(
            query,
            inputs,
            top_k=top_k,
            raw_scores=raw_scores,
            instruction=instruction,
            truncate=truncate,
        )
    for document in ranked:
        sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()
    return 0


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line (`sys.argv` if None) and exit."""
    sys.exit(_run(argv))


def _run(argv: Sequence[str] | None) -> int:
    try:
        command, bound, _ = app.parse_args(sys.argv[1:] if argv is None else argv)
    except ValueError as error:  # a settings record refuses a value or a combination
        return _complain(str(error), EXIT_CONFIGURATION)
    try:
        result = command(*bound.args, **bound.kwargs)
        return result if isinstance(result, int) else 0  # --help and --version return nothing
    except HotbedError as error:
        return _complain(error.message, exit_code(error))
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"hotbed: {message}\n")
    return code


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(level=level.upper(), format=_LOG_FORMAT)


if __name__ == "__main__":
    main()
