"""The end of every answered request: headers and timings."""

from __future__ import annotations

import time
from typing import Protocol

from hotbed.ivy.http import JSON_TYPE, Reply
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.tracing import Stages
from hotbed.ivy.work import Call


class Computed(Protocol):
    """What the headers say of a result."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def tokenize_us(self) -> int: ...
    @property
    def queue_us(self) -> int: ...
    @property
    def device_us(self) -> int: ...


def finish(call: Call, result: Computed, body: bytes, metrics: Metrics) -> Reply:
    """The reply of status 200, with `x-hotbed-fingerprint` and `server-timing` in milliseconds."""
    now = time.perf_counter()
    metrics.encode_seconds.observe(now - call.computed_at)
    timing = (
        f"tokenize;dur={result.tokenize_us / 1000:.3f}, queue;dur={result.queue_us / 1000:.3f}, "
        f"device;dur={result.device_us / 1000:.3f}, total;dur={(now - call.start) * 1000:.3f}"
    )
    return Reply(
        200,
        body,
        (
            JSON_TYPE,
            (b"x-hotbed-fingerprint", result.fingerprint.encode()),
            (b"server-timing", timing.encode()),
        ),
        Stages(
            read_at=int(call.read_at * 1e9),
            parsed_at=int(call.parsed_at * 1e9),
            tokenize_ns=result.tokenize_us * 1000,
            computed_at=int(call.computed_at * 1e9),
            encoded_at=int(now * 1e9),
        )
        if call.is_traced
        else None,
    )
