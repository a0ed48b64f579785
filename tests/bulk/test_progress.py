"""Progress: plain lines where there is no terminal, a bar where there is one."""

from __future__ import annotations

import io

import pytest

from hotbed.bulk import progress as module
from hotbed.bulk.policies import Counts
from hotbed.bulk.progress import Rates, duration, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_say_rows_rate_and_time_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    output = io.StringIO()
    with progress(Rates(1000, lambda: 2.0), output) as report:
        now[0] += 5
        report(Counts(tokens=500), 100)
        assert output.getvalue() == ""
        now[0] += 5
        report(Counts(tokens=500), 100)
    assert output.getvalue() == ("200 of 1,000 rows, 100 tokens/s, device busy 80%, 40 s to go\n")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    output = Terminal()
    with progress(Rates(1000, lambda: None), output) as report:
        report(Counts(tokens=500), 1000)
    assert "1,000/1,000 rows" in output.getvalue()
    assert "device" not in output.getvalue()


def test_durations_read_well() -> None:
    assert [duration(s) for s in (12.4, 187, 3723)] == ["12 s", "3 min 07 s", "1 h 02 min"]
