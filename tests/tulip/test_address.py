"""Symptoms guarded: a stale socket that blocks the start, a live server whose path is taken."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hotbed.tulip.address import check_address, remove_stale_socket, unix_path


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:50051",
        "localhost:0",
        "0.0.0.0:65535",
        "[::]:50051",
        "[::1]:1",
        "unix:/run/x.sock",
    ],
)
def test_a_good_address_passes(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "host:port"),
        ("50051", "host:port"),
        (":50051", "host:port"),
        ("host:65536", "host:port"),
        ("host:port", "host:port"),
        ("::1:50051", "host:port"),
        ("http://host:1", "host:port"),
        ("host :1", "host:port"),
        ("unix:", "absolute path"),
        ("unix:x.sock", "absolute path"),
        ("unix:/" + "x" * 107, "108 bytes, the limit is 107"),
    ],
)
def test_a_bad_address_is_refused(address: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_address(address)


def test_the_path_of_a_unix_address() -> None:
    assert unix_path("unix:/a/b") == Path("/a/b")
    assert unix_path("host:1") is None


def test_a_stale_socket_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    remove_stale_socket(f"unix:{path}")
    assert not path.exists()


def test_a_living_servers_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(path))
        alive.listen(1)
        with pytest.raises(OSError, match="a process listens there"):
            remove_stale_socket(f"unix:{path}")
    assert path.exists()


def test_a_living_but_busy_servers_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        waiting = []
        try:
            for _ in range(3):  # fills the backlog
                client = socket.socket(socket.AF_UNIX)
                client.setblocking(False)
                client.connect_ex(str(path))
                waiting.append(client)
            with pytest.raises(OSError, match="a process listens there"):
                remove_stale_socket(f"unix:{path}")
        finally:
            for client in waiting:
                client.close()
    assert path.exists()


def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(OSError, match="no socket"):
        remove_stale_socket(f"unix:{path}")
    assert path.read_text() == "data"


def test_nothing_there_and_tcp_are_no_concern(tmp_path: Path) -> None:
    remove_stale_socket(f"unix:{tmp_path / 'none'}")
    remove_stale_socket("127.0.0.1:50051")
