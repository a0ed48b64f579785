"""The start-up page: what is served, where, and a line to try it with."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hotbed import __version__
from hotbed.core.model_info import ModelInfo


@dataclass(frozen=True, slots=True)
class Service:
    """What the page tells.

    Attributes:
        info: facts of the served model.
        served_name: the name that clients send as `model`.
        base_url: of the gateway, e.g. ``http://127.0.0.1:8000``.
        num_replicas: Tulip processes.
        num_workers: Ivy processes.
        num_threads: CPU threads of a replica; None where that is the device's matter.
    """

    info: ModelInfo
    served_name: str
    base_url: str
    num_replicas: int
    num_workers: int
    num_threads: int | None


def base_url(host: str, port: int, scheme: str = "http") -> str:
    """URL for this machine's browser; a wildcard address becomes ``localhost``."""
    if host in ("", "0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        host = "localhost"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def facts(service: Service) -> list[tuple[str, str]]:
    """(label, value) pairs in the order of the page."""
    info = service.info
    threads = "" if service.num_threads is None else f", {service.num_threads} threads each"
    path, rows, body = _of_task(service)
    return [
        ("model", info.name),
        ("rows", rows),
        ("input", f"up to {info.max_tokens:,} tokens a text"),
        ("compute", f"{info.dtype} on {info.device}"),
        ("fingerprint", info.fingerprint),
        ("replicas", f"{service.num_replicas}{threads}"),
        ("workers", f"{service.num_workers}"),
        ("OpenAI API", f"{service.base_url}/v1"),
        ("page", f"{service.base_url}/"),
        ("docs", f"{service.base_url}/docs"),
        ("health", f"{service.base_url}/ready"),
        ("metrics", f"{service.base_url}/metrics"),
        (
            "try",
            f"curl -s {service.base_url}{path} -H 'content-type: application/json'"
            f" -d {shlex.quote(json.dumps(body, ensure_ascii=False))}",
        ),
    ]


def _of_task(service: Service) -> tuple[str, str, dict[str, object]]:
    """(path to try, what its rows are, a body for it)."""
    info, body = service.info, {"model": service.served_name}
    if info.task == "embed" and info.first_output == "sparse":
        return "/embed_sparse", f"weights of {info.vocab_size:,} token ids", {
            **body, "inputs": "Hello",
        }  # fmt: skip
    if info.task == "embed" and info.first_output == "multi_vector":
        rows = f"{info.widths['multi_vector']} dimensions, a vector a token"
        return "/v1/multi-vector", rows, {**body, "input": "Hello"}
    if info.task == "embed":
        rows = f"{info.dimensions} dimensions, {info.pooling} pooling"
        return "/v1/embeddings", rows, {**body, "input": "Hello"}
    if len(info.labels) == 1:
        texts = {"query": "Who is there?", "documents": ["Hello"]}
        return "/v1/rerank", f"1 score a pair, {info.activation}", {**body, **texts}
    return (
        "/v1/classify",
        f"{len(info.labels)} labels, {info.activation}",
        {**body, "input": "Hello"},
    )


def show_page(console: Console, service: Service) -> None:
    """Print the page: framed on a terminal, else plain lines ``label: value``."""
    title = f"Hotbed {__version__} is ready"
    pairs = facts(service)
    if not console.is_terminal:
        console.file.write("\n".join([title, *(f"{label}: {value}" for label, value in pairs)]))
        console.file.write("\n")
        console.file.flush()
        return
    *framed, (_, command) = pairs
    console.print(Panel(_table(framed), title=title, title_align="left", expand=False))
    # Outside the frame and never wrapped by us, so that it can be copied.
    console.print(command, soft_wrap=True, highlight=False, markup=False)


def _table(pairs: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in pairs:
        table.add_row(label, Text(value))  # a Text: no markup in names
    return table
