"""What happens to the children's lines when the terminal is closed."""

from __future__ import annotations

import errno
import io
import json
import logging
import signal
from types import FrameType

import pytest

from hotbed.core.log_format import JsonFormatter
from hotbed.serve.output import OutputLog


def test_lines_are_told_apart_by_who_speaks(capsys: pytest.CaptureFixture[str]) -> None:
    log = OutputLog()
    log.write_line("tulip-0", "loading")
    log.write_line("ivy-1", "")
    assert capsys.readouterr().err == "tulip-0 | loading\nivy-1 | \n"


def test_every_line_is_an_object_where_json_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = OutputLog("json")
    record = logging.LogRecord("hotbed.x", logging.INFO, "", 0, 'said "%s"', ("a\nb",), None)
    log.write_line("tulip-0", JsonFormatter().format(record))
    log.write_line("tulip-0", 'Traceback: "x"')
    log.write_line("serve", "{is no JSON}")
    first, second, third = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["process"], first["logger"], first["message"]) == (
        "tulip-0", "hotbed.x", 'said "a\nb"',
    )  # fmt: skip
    assert second == {"process": "tulip-0", "message": 'Traceback: "x"'}
    assert third == {"process": "serve", "message": "{is no JSON}"}


def test_closed_pipe_asks_once_for_an_orderly_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in `hotbed serve 2>&1 | head -1`. Twice would mean: kill the children at once.
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = signal.signal(signal.SIGHUP, receive)
    try:
        monkeypatch.setattr("sys.stderr", Closed())
        log = OutputLog()
        log.write_line("tulip-0", "one")
        log.write_line("tulip-0", "two")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert received == [signal.SIGHUP]


def test_full_disk_loses_lines_but_not_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    log = OutputLog()
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", Full())
        log.write_line("tulip-0", "lost")
    later = io.StringIO()
    monkeypatch.setattr("sys.stderr", later)
    log.write_line("tulip-0", "written")
    assert later.getvalue() == "tulip-0 | written\n"
