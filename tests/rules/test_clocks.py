"""Only the monotonic clock decides anything: a wall clock that jumps must not expire requests."""

from __future__ import annotations

import ast

import pytest

from tests.rules.imports import modules

ROOMS = ("core", "wire", "tulip", "ivy", "serve")
# These say what time it is: the field `created` of an answer, and the start of a trace.
DATES = {
    "hotbed.ivy.dialects.classify",
    "hotbed.ivy.dialects.score",
    "hotbed.ivy.dialects.vllm",
    "hotbed.ivy.models",
    "hotbed.ivy.tracing",
    "hotbed.wire.telemetry",
}
WALL_CLOCKS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow")}


def wall_clocks(source: str) -> list[int]:
    """Lines that read the wall clock."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and (getattr(node.value, "id", getattr(node.value, "attr", "")), node.attr) in WALL_CLOCKS
    ]


def test_the_servers_never_read_the_wall_clock() -> None:
    found = {
        name
        for name, path in modules().items()
        if name.split(".")[1:2] and name.split(".")[1] in ROOMS
        if wall_clocks(path.read_text(encoding="utf-8"))
    }
    assert found == DATES


@pytest.mark.parametrize("source", ["time.time()", "datetime.datetime.now()", "datetime.now(tz)"])
def test_the_rule_finds_wall_clocks(source: str) -> None:
    assert wall_clocks(source)
    assert not wall_clocks("time.monotonic()")
