"""The one settings record of an Ivy process."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.ivy.addresses import check_entry, is_fixed
from hotbed.wire.limits import KEEPALIVE_TIME_S, KEEPALIVE_TIMEOUT_S

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2


@dataclass(frozen=True, kw_only=True)
class IvySettings:
    """Settings of the HTTP gateway."""

    model: str = DEFAULT_MODEL
    """Folder, hub name or installed model whose tokenizer and prompts are used."""
    revision: str | None = None
    """Commit, tag or branch of a hub model."""
    offline: bool | None = None
    """Never use the network to find the model; unset: as the hub library is set."""
    models_file: Path | None = None
    """TOML file that lists several models with their names, replicas and prompts; then model,
    revision, served_model_names, replicas, min_ready_replicas and prompts_file are not given."""
    prompts_file: Path | None = None
    """TOML file with prompts for the model, in place of its own or beside them."""
    task: Literal["auto", "embed", "score", "sparse"] = "auto"
    """What the model does: embed or score (rerank, classify); auto: what its files say."""
    served_model_names: tuple[str, ...] = ()
    """More names that clients may ask for; the first one is the name in the answers."""
    replicas: tuple[str, ...] = ("127.0.0.1:50051",)
    """gRPC addresses of the Tulip replicas: host:port or unix:/path; dns:host:port for all
    addresses of a name, file:/path for a file with an address a line, both looked up again."""
    replica_refresh_s: float = 5.0
    """Time between two looks at DNS names and files of replicas."""
    slow_start_s: float = 10.0
    """Time in which the share of a replica that came up grows to a whole; 0: at once."""
    eject_after_failures: int = 5
    """Failures in a row after which a replica is left out for a while."""
    ejection_s: float = 5.0
    """For how long at first; doubled each time until it answers, at most eightfold."""
    hedge: bool = False
    """Send a chunk to a second replica once the first has taken longer than 95 of 100 did."""
    min_ready_replicas: int | None = None
    """Healthy replicas from which on /ready says 200; unset: all of them."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all."""
    port: int = 8000
    """Port shared by all Ivy processes of the machine (SO_REUSEPORT)."""
    own_port: int | None = None
    """One more port for this process alone, e.g. to scrape the metrics of each process."""
    fast_tokenizers: Literal["auto", "off"] = "auto"
    """Use nanotoken or fastokens where they agree exactly with Hugging Face's tokenizer."""
    tokenizer_threads: int = 2
    """Threads for tokenising large requests."""
    auto_truncate: bool = False
    """Cut inputs that are too long where a request does not say; otherwise they are refused."""
    max_body_bytes: int = 32 * 1024 * 1024
    """Largest body, also after decompression; past it 413."""
    max_inputs: int = 2048
    """Most inputs in a request; past it 400, as OpenAI answers."""
    max_request_tokens: int = 1_000_000
    """Most tokens in a request; past it 413."""
    max_pending_tokens: int = 4_000_000
    """Tokens of one model's requests that are not answered yet, in this process; past it 429. A
    request is always taken where none is pending."""
    max_requests_in_flight: int = 1024
    """Requests worked on at a time in this process; past it 429."""
    max_pending_body_bytes: int = 512 * 1024 * 1024
    """Body bytes held at a time in this process; past it 429."""
    max_chunks_per_replica: int = 3
    """Chunks of one request in flight at a time, for each replica that is up: two keep its device
    busy, the third covers the way there and back; more would only make others wait behind it."""
    max_attempts: int = 3
    """Replicas that one chunk is sent to when they fail one after the other; then 503."""
    request_timeout_s: float = 60.0
    """Time for one request unless the header x-request-timeout-ms gives less or more; then 504."""
    max_request_timeout_s: float = 600.0
    """Most that x-request-timeout-ms can ask for."""
    unavailable_wait_s: float = 5.0
    """Time a request waits for a replica to come back before its 503."""
    connect_timeout_s: float = 5.0
    """Time for a replica's answer when connecting."""
    max_backoff_s: float = 2.0
    """Longest pause between two attempts to connect to a replica."""
    replica_keepalive_time_s: float = KEEPALIVE_TIME_S
    """A replica that is silent for so long is pinged; not below half of the replica's own
    keepalive_time_s, which drops who pings more often."""
    replica_keepalive_timeout_s: float = KEEPALIVE_TIMEOUT_S
    """A replica that does not answer a ping for so long is gone: its chunks go to others."""
    replica_tls_ca: Path | None = None
    """PEM file with the authorities whose replicas are trusted; then replicas are spoken to by TLS.
    This and the next two are read at every connection, so that renewed ones are taken."""
    replica_tls_cert: Path | None = None
    """PEM file with the gateway's own certificate chain, for replicas that want one."""
    replica_tls_key: Path | None = None
    """PEM file with its private key."""
    replica_tls_name: str | None = None
    """Name that replicas' certificates must have; unset: the host of the address. Needed where
    replicas are found by DNS, since their addresses are numbers then."""
    keep_alive_s: float = 180.0
    """Idle time after which a connection is closed; must be longer than the clients' (75 to 90 s
    in common pools and proxies), else they send on a connection that was just closed."""
    drain_delay_s: float = 1.0
    """Time after SIGTERM with /ready at 503 in which requests are still taken, each answered with
    Connection: close, so that clients leave before their connections are closed under them."""
    drain_timeout_s: float = 30.0
    """Time for requests in flight after that; then they get 503."""
    api_keys_file: Path | None = None
    """File with the SHA-256 of one API key a line; then requests need one of the keys."""
    tenant_header: str | None = None
    """Header whose value says with whom a request takes turns at the replicas, such as x-tenant; to
    be set by a proxy that clients cannot get round. Unset: the API key says it, and without keys
    all requests of this process share one turn."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may read answers in a browser; * for any."""
    tls_certfile: Path | None = None
    """PEM file with the certificate chain; then HTTPS is served."""
    tls_keyfile: Path | None = None
    """PEM file with its private key."""
    log_format: Literal["text", "json"] = "text"
    """Log lines for people, or a JSON object a line."""
    access_log: bool = False
    """Log a line for each request: its id, route, status and time."""
    traces: bool = False
    """Send OpenTelemetry traces, as OTEL_EXPORTER_OTLP_ENDPOINT and its like say."""
    backlog: int = 2048
    """Length of the listen queue."""

    def __post_init__(self) -> None:
        if self.models_file is not None:
            for name in _OF_ONE_MODEL:
                if getattr(self, name) != _DEFAULTS[name]:
                    raise ValueError(f"{name} and models_file cannot both be given")
        if not self.replicas:
            raise ValueError("replicas: at least one address is needed")
        if len(set(self.replicas)) != len(self.replicas):
            raise ValueError("replicas: an address is listed twice")
        if (self.tls_certfile is None) != (self.tls_keyfile is None):
            raise ValueError("tls_certfile and tls_keyfile go together")
        self._check_replica_tls()
        if self.tenant_header is not None and not _HEADER.fullmatch(self.tenant_header):
            raise ValueError(f"tenant_header: {self.tenant_header!r} is no name of a header")
        for entry in self.replicas:
            check_entry(entry)
        for field in fields(self):
            value = getattr(self, field.name)
            may_be_zero = field.name in ("port", "own_port", "drain_delay_s", "unavailable_wait_s",
                                         "slow_start_s")  # fmt: skip
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            if not value >= 0 or (value == 0 and not may_be_zero):  # also refuses NaN
                raise ValueError(f"{field.name} must be above 0, got {value}")
        can_grow = not all(map(is_fixed, self.replicas))
        if not can_grow and (self.min_ready_replicas or 1) > len(self.replicas):
            raise ValueError(
                f"min_ready_replicas is {self.min_ready_replicas}, "
                f"but there are only {len(self.replicas)} replicas"
            )

    def _check_replica_tls(self) -> None:
        if (self.replica_tls_cert is None) != (self.replica_tls_key is None):
            raise ValueError("replica_tls_cert and replica_tls_key go together")
        for name in ("replica_tls_cert", "replica_tls_name"):
            if getattr(self, name) is not None and self.replica_tls_ca is None:
                raise ValueError(f"{name} needs replica_tls_ca")


_OF_ONE_MODEL = (
    "model",
    "revision",
    "task",
    "served_model_names",
    "replicas",
    "min_ready_replicas",
    "prompts_file",
)
_DEFAULTS = {field.name: field.default for field in fields(IvySettings)}
