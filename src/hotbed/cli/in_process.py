"""Commands that run a model in this process: `hotbed embed` and `hotbed rerank`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from hotbed.bulk.options import JobOptions
from hotbed.cli.application import app
from hotbed.cli.files import embed_files
from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.core.errors import invalid


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
    invariant: bool = False,
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
        dtype: type of the model's compute: auto, float32, bfloat16 or, on a GPU, fp8.
        invariant: a text's row is the same bytes alone and in every batch.
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
        return embed_files(
            texts,
            job,
            model=model,
            device=device,
            dtype=dtype,
            invariant=invariant,
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
        invariant=invariant,
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
    device: str = "auto",
    dtype: str = "auto",
    attention: str = "auto",
    kernel_dir: Path | None = None,
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
        device: auto (a GPU if there is one), cpu, cuda or cuda:N.
        dtype: what it computes in: auto (float32 on a CPU, bfloat16 on a GPU), float32, bfloat16,
            or fp8 on a GPU.
        attention: backend on a GPU: auto, sdpa, varlen or fa4.
        kernel_dir: folder of kernels built ahead of time, for a GPU.
        offline: never use the network to find the model; unset: as the hub library is set.
    """
    import orjson  # noqa: PLC0415

    from hotbed import Reranker  # noqa: PLC0415

    inputs = list(documents) or [line.rstrip("\r\n") for line in sys.stdin]
    with Reranker(
        model,
        device=device,
        dtype=dtype,
        num_threads=threads,
        offline=offline,
        attention=attention,
        kernel_dir=kernel_dir,
    ) as reranker:
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
