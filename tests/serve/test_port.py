"""A port that is taken is told at once, and no second service shares it unseen."""

from __future__ import annotations

import socket

import pytest

from hotbed.serve.port import PortError, reserve_port

HOST = "127.0.0.1"


def listening(port: int = 0, *, shared: bool = False) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((HOST, port))
    listener.listen()
    return listener


def test_zero_takes_a_free_port_that_workers_can_share() -> None:
    with reserve_port(HOST, 0) as holder:
        host, port = holder.getsockname()
        assert host == HOST
        assert port > 0
        with listening(port, shared=True), listening(port, shared=True):
            pass


def test_connections_go_to_the_worker_and_not_to_the_holder() -> None:
    with reserve_port(HOST, 0) as holder:
        port = holder.getsockname()[1]
        with listening(port, shared=True) as worker:
            worker.settimeout(10)
            for _ in range(20):
                with socket.create_connection((HOST, port)), worker.accept()[0]:
                    pass


@pytest.mark.parametrize("shared", [False, True])
def test_taken_port_is_refused_with_the_way_out(shared: bool) -> None:
    with listening(shared=shared) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortError, match=rf"port {port} of 127.0.0.1 is taken.*--port"):
            reserve_port(HOST, port)


def test_port_of_a_service_that_still_starts_is_taken_too() -> None:
    with reserve_port(HOST, 0) as holder, pytest.raises(PortError, match="is taken"):
        reserve_port(HOST, holder.getsockname()[1])


def test_connections_of_the_last_run_do_not_keep_the_port() -> None:
    # Else a restart within a minute of the stop fails: the closed side waits in TIME_WAIT.
    with listening(shared=True) as worker:
        port = worker.getsockname()[1]
        with socket.create_connection((HOST, port)) as client:
            accepted, _ = worker.accept()
            accepted.close()  # the server closes first
            assert client.recv(1) == b""
    reserve_port(HOST, port).close()


def test_name_becomes_the_number_that_workers_bind() -> None:
    with reserve_port("localhost", 0) as holder:
        assert holder.getsockname()[0] in ("127.0.0.1", "::1")


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("203.0.113.7", "host 203.0.113.7 is not an address of this machine"),
        ("no such host", "host 'no such host' cannot be resolved"),
    ],
)
def test_host_of_another_machine_is_refused(host: str, message: str) -> None:
    with pytest.raises(PortError, match=message):
        reserve_port(host, 0)
