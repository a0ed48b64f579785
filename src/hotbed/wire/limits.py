"""Limits that both ends of the wire agree on, and the gRPC options that enforce them.

`Limits` is what one replica promises (its Info reply); the constants hold for every replica.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Largest gRPC message, set on both ends: 16 Mi token ids, or 16 Ki rows of 1,024 float32."""

SOFT_MESSAGE_BYTES = 4 * 1024 * 1024
"""A stream's writer starts a new message past this size; only a single larger item exceeds it."""

_KEEPALIVE_TIME_MS = 20_000
_KEEPALIVE_TIMEOUT_MS = 10_000


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


def server_options() -> list[tuple[str, int]]:
    """Options for the gRPC server: message limits, keep-alive, one owner a port."""
    return [
        *_message_options(),
        *_keepalive_options(),
        # A client may ping as often as `channel_options` says, calls in flight or not; without
        # this the server answers ENHANCE_YOUR_CALM and drops the connection.
        ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_TIME_MS // 2),
        # gRPC shares a port between processes by default: a second replica started on the same
        # address by mistake would take half of the requests instead of failing.
        ("grpc.so_reuseport", 0),
    ]


def channel_options() -> list[tuple[str, int]]:
    """Options for a client's channel: the same limits, keep-alive pings, no proxy."""
    return [
        *_message_options(),
        *_keepalive_options(),
        # Replicas are neighbours: an http_proxy meant for the outside must not catch them.
        ("grpc.enable_http_proxy", 0),
    ]


def _message_options() -> list[tuple[str, int]]:
    return [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ]


def _keepalive_options() -> list[tuple[str, int]]:
    return [
        ("grpc.keepalive_time_ms", _KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
