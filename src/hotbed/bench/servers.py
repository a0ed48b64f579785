"""How each system's own server is started, and how it is asked."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from hotbed.bench.adapters import vllm
from hotbed.bench.client import MODEL
from hotbed.bench.service import free_port
from hotbed.core.errors import invalid

ClientKind = Literal["grpc", "http-ids", "http-texts"]
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """What a server is to be started with.

    Attributes:
        python: the system's interpreter.
        folder: of the model.
        device: ``cpu`` or ``cuda``.
        max_tokens: longest input.
        most_tokens: of all requests that will be under way at a time.
        num_threads: on a CPU; None: the system's own default.
        options: of this system, as the user gave them.
        num_workers: gateway processes of Hotbed.
    """

    python: str
    folder: str
    device: str
    max_tokens: int
    most_tokens: int
    num_threads: int | None
    options: Mapping[str, str]
    num_workers: int


@dataclass(frozen=True, slots=True)
class Server:
    """A server to start.

    Attributes:
        commands: its processes; none if it runs already.
        url: of its HTTP API.
        ready: path that answers with 200 once it can serve.
        ways: for a cell's way, how clients ask and at which address.
        settings: in words.
        environment: added to what the system has.
        folder: made for it, to be removed with it.
    """

    commands: tuple[tuple[str, ...], ...]
    url: str
    ready: str
    ways: Mapping[str, tuple[ClientKind, str]]
    settings: str
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None


MakeServer = Callable[[ServerSpec], Server]


def hotbed(spec: ServerSpec) -> Server:
    """One replica and its gateway's processes; four clients with token ids ask the replica."""
    # A Unix socket, as hotbed serve has it between its processes.
    folder = tempfile.mkdtemp(prefix="hotbed-bench-")
    grpc, port = f"unix:{folder}/tulip.sock", free_port()
    command = (spec.python, "-m", "hotbed.cli")
    model = ("--model", spec.folder, "--offline")
    options = dict(spec.options)
    kernels = ("--kernel-dir", options["kernel_dir"]) if "kernel_dir" in options else ()
    # vLLM's server captures its graphs before the first request, too.
    capture = ("--capture", "start") if spec.device == "cuda" else ()
    threads = () if spec.num_threads is None else ("--num-threads", str(spec.num_threads))
    # Room for all clients' batches, also for one client, which gets a share of the queue: nothing
    # is refused, as on the other side.
    room = max(spec.most_tokens, spec.max_tokens)
    replica = (
        *command,
        "tulip",
        *model,
        *("--listen", grpc, "--local-stream", "--device", spec.device),
        *(*capture, *kernels, *threads),
        *("--max-item-tokens", str(room), "--max-queue-tokens", str(2 * room)),
    )
    gateway = (
        *command,
        "ivy",
        *model,
        *("--replicas", grpc, "--port", str(port), "--served-model-names", MODEL),
    )
    return Server(
        commands=(replica, *[gateway] * spec.num_workers),
        url=f"http://{_HOST}:{port}",
        ready="/ready",
        ways={
            "clients": ("grpc", grpc),
            "http": ("http-texts", f"http://{_HOST}:{port}"),
        },
        settings=(
            f"{' '.join(('hotbed tulip --local-stream', *capture))},"
            f" {spec.num_workers} x hotbed ivy;"
            " clients with token ids over gRPC, texts over HTTP"
        ),
        # As hotbed serve sets it for its gateways.
        environment={"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"},
        folder=folder,
    )


def vllm_server(spec: ServerSpec) -> Server:
    """The OpenAI server of vLLM; clients with token ids ask it over HTTP, it has no other way."""
    port = free_port()
    url = f"http://{_HOST}:{port}"
    settings = vllm.engine_settings(spec.options, task="embed", max_tokens=spec.max_tokens)
    flags: list[str] = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", str(value)]
    command = (
        *(spec.python, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", spec.folder, "--served-model-name", MODEL),
        *("--host", _HOST, "--port", str(port), *flags),
        *("--disable-uvicorn-access-log", "--disable-log-stats"),
    )
    return Server(
        commands=(command,),
        url=url,
        ready="/health",
        ways={"clients": ("http-ids", url), "http": ("http-texts", url)},
        settings=(
            f"vLLM's OpenAI server, {vllm.in_words(settings)};"
            " clients with token ids over HTTP, texts over HTTP"
        ),
        environment=vllm.environment(),
    )


def infinity(spec: ServerSpec) -> Server:
    """infinity_emb's server with its torch engine."""
    port = free_port()
    url = f"http://{_HOST}:{port}"
    dtype = "bfloat16" if spec.device == "cuda" else "float32"
    command = (
        # Its script may not be on the path; the module has no other door.
        *(spec.python, "-c", "from infinity_emb.cli import cli; cli()"),
        *("v2", "--model-id", spec.folder, "--no-bettertransformer"),
        *("--served-model-name", MODEL, "--engine", "torch", "--device", spec.device),
        *("--dtype", dtype, "--host", _HOST, "--port", str(port), "--url-prefix", "/v1"),
        *("--batch-size", spec.options.get("batch_size", "64"), "--no-model-warmup"),
        *("--compile" if spec.device == "cuda" else "--no-compile",),
    )
    return Server(
        commands=(command,),
        url=url,
        ready="/health",
        ways={"clients": ("http-texts", url), "http": ("http-texts", url)},
        settings=f"infinity_emb v2, torch engine, {dtype}, batch size 64; texts over HTTP",
        environment={"DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"},
    )


def tei(spec: ServerSpec) -> Server:
    """text-embeddings-inference's router."""
    port = free_port()
    url = f"http://{_HOST}:{port}"
    dtype = "float16" if spec.device == "cuda" else "float32"
    command = (
        *(shutil.which("text-embeddings-router") or "text-embeddings-router",),
        *("--model-id", spec.folder, "--dtype", dtype, "--hostname", _HOST, "--port", str(port)),
        *("--max-client-batch-size", "128", "--max-batch-tokens", "16384"),
    )
    return running(url, f"text-embeddings-router, {dtype}; texts over HTTP", (command,))


def running(url: str, settings: str = "", commands: tuple[tuple[str, ...], ...] = ()) -> Server:
    """A server that takes texts at OpenAI's route.

    Raises:
        HotbedError: INVALID_INPUT for a URL of another form than ``http://HOST:PORT``.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.path.strip("/") or parts.query:
        raise invalid(f"--url takes SYSTEM=http://HOST:PORT, got {url!r}", "url")
    url = url.rstrip("/")
    return Server(
        commands=commands,
        url=url,
        ready="/health",
        ways={"clients": ("http-texts", url), "http": ("http-texts", url)},
        settings=settings or f"a server that ran already, {url}; texts over HTTP",
    )
