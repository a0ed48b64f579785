"""A process that is ready says so to who started it, and to nobody else."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from hotbed.core.notify import notify


@pytest.mark.parametrize("abstract", [False, True])
def test_state_arrives_at_the_socket_named(abstract: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="hb-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver,
    ):
        path = str(Path(folder) / "notify")
        receiver.bind("\0" + path if abstract else path)
        receiver.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + path if abstract else path)
        notify()
        assert receiver.recv(100) == b"READY=1"


@pytest.mark.parametrize("value", [None, ""])
def test_nobody_asked_is_no_error(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    else:
        monkeypatch.setenv("NOTIFY_SOCKET", value)
    notify()


def test_socket_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the process would serve while its starter waits for ever.
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/notify")
    with pytest.raises(OSError, match="No such file"):
        notify()
