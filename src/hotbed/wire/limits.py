"""Limits that both ends of the wire agree on, and the gRPC options that enforce them.

`Limits` is what one replica promises (its Info reply); the constants hold for every replica.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Largest gRPC message, set on both ends: 16 Mi token ids, or 16 Ki rows of 1,024 float32."""

MAX_ANSWER_BYTES = 48 * 1024 * 1024
"""Most bytes of rows that the outputs of an item may come to, all together; past it TOO_LARGE. The
rest of a message is room for what else is in it. Dense rows alone are bounded by the sequences."""

SOFT_MESSAGE_BYTES = 4 * 1024 * 1024
"""A stream's writer starts a new message past this size; only a single larger item exceeds it."""

MAX_TENANT_BYTES = 64
"""Longest name of a tenant."""

FRAMED_SUFFIX = ".stream"
"""Behind the path of a replica's Unix socket: where it takes framed streams."""

KEEPALIVE_TIME_S = 20.0
KEEPALIVE_TIMEOUT_S = 10.0
"""A peer that is silent for the first is pinged, and gone if it does not answer in the second."""

_CONNECTION_AGE_GRACE_S = 30


@dataclass(frozen=True, slots=True)
class Limits:
    """What one replica accepts; fields as in the proto message of the same name.

    Attributes:
        max_step_tokens: token budget of a step, so a good size for a chunk.
        max_step_sequences: most sequences in a step.
        max_queue_tokens: tokens that may wait; past it an item is answered OVERLOADED.
        max_item_sequences: sequences in an item; past it TOO_LARGE.
        max_item_tokens: tokens in an item; past it TOO_LARGE.
        max_stream_items: items in flight on one stream; past it OVERLOADED.
    """

    max_step_tokens: int
    max_step_sequences: int
    max_queue_tokens: int
    max_item_sequences: int
    max_item_tokens: int
    max_stream_items: int


def server_options(
    *,
    keepalive_time_s: float = KEEPALIVE_TIME_S,
    keepalive_timeout_s: float = KEEPALIVE_TIMEOUT_S,
    max_connection_age_s: float = 0.0,
) -> list[tuple[str, int]]:
    """Options for the gRPC server: message limits, keep-alive, one owner a port.

    Args:
        keepalive_time_s: a connection that is silent for so long is pinged.
        keepalive_timeout_s: and closed if the answer takes longer than this.
        max_connection_age_s: clients are asked to connect anew after this (0: never), so that they
            find new replicas behind a name; what runs then has 30 s to end.
    """
    age = [
        ("grpc.max_connection_age_ms", round(max_connection_age_s * 1000)),
        ("grpc.max_connection_age_grace_ms", _CONNECTION_AGE_GRACE_S * 1000),
    ]
    return [
        *_message_options(),
        *_keepalive_options(keepalive_time_s, keepalive_timeout_s),
        # A client may ping twice as often as the server does or `channel_options` says, calls in
        # flight or not; without this the server answers ENHANCE_YOUR_CALM and drops it.
        (
            "grpc.http2.min_ping_interval_without_data_ms",
            round(min(keepalive_time_s, KEEPALIVE_TIME_S) * 1000) // 2,
        ),
        # gRPC shares a port between processes by default: a second replica started on the same
        # address by mistake would take half of the requests instead of failing.
        ("grpc.so_reuseport", 0),
        *(age if max_connection_age_s else []),
    ]


def channel_options(
    *,
    keepalive_time_s: float = KEEPALIVE_TIME_S,
    keepalive_timeout_s: float = KEEPALIVE_TIMEOUT_S,
) -> list[tuple[str, int]]:
    """Options for a client's channel: the same limits, keep-alive pings, no proxy.

    Args:
        keepalive_time_s: a connection that is silent for so long is pinged; a server drops clients
            that do so more than twice as often as it does itself.
        keepalive_timeout_s: it counts as gone if the answer takes longer than this.
    """
    return [
        *_message_options(),
        *_keepalive_options(keepalive_time_s, keepalive_timeout_s),
        # Replicas are neighbours: an http_proxy meant for the outside must not catch them.
        ("grpc.enable_http_proxy", 0),
    ]


def _message_options() -> list[tuple[str, int]]:
    return [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ]


def _keepalive_options(time_s: float, timeout_s: float) -> list[tuple[str, int]]:
    return [
        ("grpc.keepalive_time_ms", round(time_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(timeout_s * 1000)),
        # Else an earlier ping without an answer holds back those of keep-alive, for a minute.
        ("grpc.http2.ping_timeout_ms", round(timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
