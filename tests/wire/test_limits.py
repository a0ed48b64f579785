"""Symptoms guarded: gRPC's 4 MB default on one end, pings that the server answers with GOAWAY."""

from __future__ import annotations

from hotbed.wire import limits


def test_both_ends_set_the_same_message_limit_both_ways() -> None:
    for options in (limits.server_options(), limits.channel_options()):
        assert dict(options)["grpc.max_receive_message_length"] == limits.MAX_MESSAGE_BYTES
        assert dict(options)["grpc.max_send_message_length"] == limits.MAX_MESSAGE_BYTES


def test_the_server_allows_pings_as_often_as_clients_send_them() -> None:
    server, channel = dict(limits.server_options()), dict(limits.channel_options())
    allowed_ms = server["grpc.http2.min_ping_interval_without_data_ms"]
    assert allowed_ms < channel["grpc.keepalive_time_ms"]
    assert server["grpc.keepalive_permit_without_calls"] == 1


def test_two_replicas_cannot_share_a_port_by_mistake() -> None:
    assert dict(limits.server_options())["grpc.so_reuseport"] == 0


def test_no_option_is_named_twice() -> None:
    for options in (limits.server_options(), limits.channel_options()):
        assert len(dict(options)) == len(options)
