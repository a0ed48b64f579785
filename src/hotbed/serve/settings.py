"""The one settings record of `hotbed serve`: what concerns the service as a whole."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from hotbed.core.defaults import DEFAULT_MODEL

MAX_PORT = 65535
COUNTED_DEVICES = ("auto", "cuda")
"""Devices that are given out to the replicas one after the other."""

# What `hotbed serve` decides for every process, so that nobody can ask for something else.
TULIP_FIELDS_OF_SERVE = frozenset(
    {
        "model",
        "revision",
        "offline",
        "task",
        "listen",
        "local_stream",
        "device",
        "dtype",
        "invariant",
        "num_threads",
        "drain_timeout_s",
        "metrics_port",
        "log_format",
    }
)
IVY_FIELDS_OF_SERVE = frozenset(
    {
        "model",
        "revision",
        "offline",
        "models_file",
        "task",
        "served_model_names",
        "replicas",
        "min_ready_replicas",
        "host",
        "port",
        "own_port",
        "drain_timeout_s",
        "log_format",
        # Replicas are on Unix sockets in a private folder.
        "replica_tls_ca",
        "replica_tls_cert",
        "replica_tls_key",
        "replica_tls_name",
    }
)


@dataclass(frozen=True)
class ServeSettings:
    """Settings of a service on one machine.

    Raises:
        ValueError: a value is out of its range.
    """

    model: str = DEFAULT_MODEL
    """Folder, hub name or installed model to serve."""
    _: KW_ONLY
    revision: str | None = None
    """Commit, tag or branch of a hub model."""
    offline: bool | None = None
    """Never use the network to find the model; unset: as the hub library is set."""
    task: Literal["auto", "embed", "score", "sparse"] = "auto"
    """What the model does: embed or score (rerank, classify); auto: what its files say."""
    served_model_names: tuple[str, ...] = ()
    """More names that clients may ask for; the first one is the name in the answers."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all."""
    port: int = 8000
    """Port of the HTTP API; 0 takes a free one."""
    replicas: int = 1
    """Tulip processes, each with the model in its own memory."""
    min_ready_replicas: int | None = None
    """Replicas that must be up for /ready to say 200; unset: all of them."""
    workers: int | None = None
    """Ivy processes; unset: half of the cores, at least 1 and at most 4."""
    device: str = "auto"
    """Where the model computes: auto (a GPU if there is one), cpu, cuda or cuda:N; with auto and
    cuda each replica takes a GPU of its own, or shares it as replicas_per_device says."""
    replicas_per_device: int = 1
    """With device auto or cuda: so many replicas share each GPU, each with the model in its own
    memory. May serve more short texts, since their Python runs side by side (docs/running.md)."""
    dtype: str = "auto"
    """Type of the compute: auto (float32 on a CPU, bfloat16 on a GPU), float32, bfloat16 or, on a
    GPU, fp8."""
    invariant: bool = False
    """A text's row is the same bytes alone, in every batch and on every replica."""
    threads: int | None = None
    """CPU threads of each replica; unset: the cores divided by the replicas."""
    drain_timeout_s: float = 30.0
    """Time after SIGTERM for requests in flight; then they get 503."""
    log_format: Literal["text", "json"] = "text"
    """Log lines for people, each with the process it is of, or a JSON object a line."""
    worker_ports: int | None = None
    """First of as many ports as there are workers, on which each answers alone: metrics are kept
    per worker, so scrape each."""
    replica_metrics_ports: int | None = None
    """First of as many ports as there are replicas, each with one replica's Prometheus page."""

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model is empty")
        if not self.host:
            raise ValueError("host is empty; 0.0.0.0 listens on all addresses")
        if not 0 <= self.port <= MAX_PORT:
            raise ValueError(f"port must be 0 to {MAX_PORT}, got {self.port}")
        for name in ("replicas", "replicas_per_device", "workers", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.replicas_per_device > 1 and self.device not in COUNTED_DEVICES:
            raise ValueError(
                f"replicas_per_device is for device auto or cuda; on {self.device!r} all replicas "
                "share it anyway"
            )
        if not self.drain_timeout_s > 0:
            raise ValueError(f"drain_timeout_s must be above 0, got {self.drain_timeout_s}")
        for name in ("worker_ports", "replica_metrics_ports"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MAX_PORT:
                raise ValueError(f"{name} must be 1 to {MAX_PORT}, got {value}")
