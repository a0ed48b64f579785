"""The one settings record of a Tulip process."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.tulip.address import check_address
from hotbed.wire.limits import (
    FRAMED_SUFFIX,
    KEEPALIVE_TIME_S,
    KEEPALIVE_TIMEOUT_S,
    MAX_MESSAGE_BYTES,
    Limits,
)

if TYPE_CHECKING:  # numpy would come with it, and `hotbed --help` needs none
    from hotbed.core.model_info import ModelInfo

_BYTES_PER_TOKEN = 4  # int32
_MAX_STEP_FLOATS = 1 << 26  # of a SPLADE's step: 256 MiB on the device and on the host
_BYTES_PER_DIMENSION = 4  # float32, the widest dtype of a row
_MESSAGE_OVERHEAD_BYTES = 64 * 1024
_MAY_BE_ZERO = (
    "max_step_tokens",
    "min_ahead_tokens",
    "max_graph_tokens",
    "max_connection_age_s",
)
_LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, kw_only=True)
class TulipSettings:
    """Settings of the batching server: one model on one device.

    Raises:
        ValueError: a value is out of its range or two do not fit each other.
    """

    model: str = DEFAULT_MODEL
    """Folder, hub name or installed model to serve."""
    revision: str | None = None
    """Commit, tag or branch of a hub model."""
    offline: bool | None = None
    """Never use the network to find the model; unset: as the hub library is set."""
    task: Literal["auto", "embed", "score", "sparse"] = "auto"
    """What the model does: embed or score (rerank, classify); auto: what its files say."""
    listen: str = "127.0.0.1:50051"
    """gRPC address: host:port or unix:/path; port 0 takes a free one."""
    local_stream: bool = False
    """With a unix: address: take streams without gRPC too, at its path with .stream behind it.
    Gateways on this machine then use that one, which takes less of either's time."""
    device: str = "auto"
    """Where the model computes: auto (a GPU if there is one), cpu, cuda or cuda:N."""
    dtype: str = "auto"
    """Type of the compute: auto (float32 on a CPU, bfloat16 on a GPU), float32, bfloat16 or, on a
    GPU, fp8."""
    invariant: bool = False
    """A text's row is the same bytes alone, in every batch and on every replica."""
    attention: str = "auto"
    """Attention backend: auto (the best that works), sdpa, varlen or fa4."""
    kernel_dir: Path | None = None
    """Folder of kernels built ahead of time, as python -m hotbed.rose.build_kernels makes it."""
    capture: Literal["lazy", "idle", "start", "off"] = "lazy"
    """When CUDA graphs are captured: at the second step of a size, while no step waits, the usual
    sizes before the first request, or never."""
    max_graph_mib: int = 8192
    """Device memory that CUDA graphs may add; past it the one used longest ago goes."""
    max_graph_tokens: int | None = None
    """Larger steps run without a graph; unset: as calibrated (hotbed doctor), else 16384."""
    num_threads: int | None = None
    """CPU threads of one step; unset: the engine's own default."""
    max_step_tokens: int = 0
    """Token budget of a step; 0: as calibrated (hotbed doctor), else what suits the device."""
    max_step_sequences: int = 512
    """Most sequences in a step."""
    max_steps_in_flight: int = 2
    """Steps handed to the engine at a time: one runs, the others are prepared behind it."""
    min_ahead_tokens: int = 512
    """Tokens that must wait before a step is prepared behind a running one; with fewer, requests
    gather until the running step ends, since a small step costs nearly as much as a larger one."""
    max_queue_tokens: int = 262_144
    """Tokens that may wait; past it items are refused as OVERLOADED."""
    max_item_sequences: int = 2048
    """Sequences in one item; past it TOO_LARGE."""
    max_item_tokens: int = 131_072
    """Tokens in one item; past it TOO_LARGE."""
    max_stream_items: int = 1024
    """Items in flight on one stream; past it OVERLOADED."""
    step_timeout_s: float = 300.0
    """A step that runs longer means that the device hangs: the process answers all and exits. Long,
    because a step may have to compile kernels first; 0 switches the watch off."""
    drain_timeout_s: float = 30.0
    """Time after SIGTERM for what is in flight; then it is answered UNAVAILABLE."""
    keepalive_time_s: float = KEEPALIVE_TIME_S
    """A client that is silent for so long is pinged."""
    keepalive_timeout_s: float = KEEPALIVE_TIMEOUT_S
    """A client that does not answer a ping for so long is gone: its items leave the queue."""
    max_connection_age_s: float = 0.0
    """Ask clients to connect anew after so long, so that they find new replicas behind a name; what
    runs then has 30 s to end. 0: never. Needed where balancers count connections."""
    tls_cert: Path | None = None
    """The server's certificate chain (PEM); unset: no TLS. Ivy needs --replica-tls-ca then."""
    tls_key: Path | None = None
    """The certificate's private key (PEM)."""
    tls_client_ca: Path | None = None
    """Serve only clients with a certificate that one of these (PEM) signed: mutual TLS."""
    warm_up: bool = True
    """Let the engine prepare for usual sizes before the first request."""
    metrics_port: int | None = None
    """Port of the Prometheus page; unset: none is served."""
    metrics_host: str = "127.0.0.1"
    """Address of the Prometheus page; 0.0.0.0 for all."""
    traces: bool = False
    """Send OpenTelemetry spans of traced items, as OTEL_EXPORTER_OTLP_ENDPOINT and its like say."""
    record_traffic: Path | None = None
    """Folder to write down in when items came, and how long their sequences are: what
    python -m bench.scheduler --trace replays. The first million items; no ids, no texts."""
    log_level: str = "info"
    """debug, info, warning or error."""
    log_format: Literal["text", "json"] = "text"
    """Log lines for people, or a JSON object a line."""

    def __post_init__(self) -> None:
        check_address(self.listen)
        if self.local_stream:
            if not self.listen.startswith("unix:"):
                raise ValueError(f"local_stream needs listen to be unix:/path, got {self.listen!r}")
            if self.tls_cert is not None:
                raise ValueError("local_stream has no TLS: it would be a way round tls_cert")
            check_address(self.listen + FRAMED_SUFFIX)
        for name in (f.name for f in fields(self) if f.name.startswith(("max_", "min_"))):
            if getattr(self, name) is not None:
                self._check_at_least(name, 0 if name in _MAY_BE_ZERO else 1)
        if self.num_threads is not None:
            self._check_at_least("num_threads", 1)
        self._check_at_least("step_timeout_s", 0)
        self._check_at_least("drain_timeout_s", 0)
        for name in ("keepalive_time_s", "keepalive_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        self._check_tls()
        if not self.model:
            raise ValueError("model is empty")
        if self.max_item_tokens > self.max_queue_tokens:
            raise ValueError(
                f"max_item_tokens ({self.max_item_tokens}) is above max_queue_tokens "
                f"({self.max_queue_tokens}): such an item could never be taken"
            )
        num_bytes = _BYTES_PER_TOKEN * (self.max_item_tokens + self.max_item_sequences)
        _check_message_size("max_item_tokens and max_item_sequences", num_bytes)
        if self.metrics_port is not None and not 0 <= self.metrics_port <= 65535:
            raise ValueError(f"metrics_port must be 0 to 65535, got {self.metrics_port}")
        if self.log_level not in _LOG_LEVELS:
            raise ValueError(
                f"log_level must be one of {', '.join(_LOG_LEVELS)}, got {self.log_level!r}"
            )

    def limits(self, info: ModelInfo, default_step_tokens: int) -> Limits:
        """What a replica with this model promises its clients.

        Raises:
            ValueError: an item of the model's longest sequence, or the rows of the largest item,
                would not fit.
        """
        if self.max_item_tokens < info.max_tokens:
            raise ValueError(
                f"max_item_tokens ({self.max_item_tokens}) is below the model's longest sequence "
                f"({info.max_tokens} tokens)"
            )
        _check_message_size(
            f"max_item_sequences rows of {info.dimensions} dimensions",
            self.max_item_sequences * info.dimensions * _BYTES_PER_DIMENSION,
        )
        return Limits(
            max_step_tokens=self.max_step_tokens or default_step_tokens,
            max_step_sequences=self._max_step_sequences(info),
            max_queue_tokens=self.max_queue_tokens,
            max_item_sequences=self.max_item_sequences,
            max_item_tokens=self.max_item_tokens,
            max_stream_items=self.max_stream_items,
        )

    def _max_step_sequences(self, info: ModelInfo) -> int:
        """Fewer than the setting where each of them takes a float for every id of a vocabulary."""
        if info.first_output != "sparse":
            return self.max_step_sequences
        return max(1, min(self.max_step_sequences, _MAX_STEP_FLOATS // info.widths["sparse"]))

    def _check_tls(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: one is missing")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("tls_client_ca needs tls_cert and tls_key")

    def _check_at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if not value >= least:  # also refuses NaN
            raise ValueError(f"{name} must be at least {least}, got {value}")


def _check_message_size(what: str, num_bytes: int) -> None:
    if num_bytes + _MESSAGE_OVERHEAD_BYTES > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"{what} need {num_bytes} bytes, a message holds {MAX_MESSAGE_BYTES} at most"
        )
