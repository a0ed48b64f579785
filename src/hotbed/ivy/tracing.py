"""OpenTelemetry traces, an extra that is off by default and then costs nothing.

A request is one server span, the child of the client's if it sent a `traceparent`. Below it are
parse, tokenize and encode, made when the answer is there, and one client span for each time that a
chunk is given to a replica: `tulip`. That span's own `traceparent` travels with the chunk, and a
Tulip with traces switched on puts its queue and its steps below it (`hotbed.tulip.tracing`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hotbed.core.errors import HotbedError
from hotbed.wire import tulip_pb2 as pb

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


@dataclass(frozen=True, slots=True)
class Stages:
    """When the stages of an answered request were, in nanoseconds of `time.perf_counter_ns`."""

    read_at: int
    parsed_at: int
    tokenize_ns: int
    computed_at: int
    encoded_at: int


class Tracing:
    """Makes the spans. Build it with `start`, or over any provider in tests."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace  # noqa: PLC0415

        from hotbed.wire import telemetry  # noqa: PLC0415

        self._provider = provider
        self.tracer = provider.get_tracer("hotbed.ivy")
        self.api, self.telemetry = trace, telemetry

    @staticmethod
    def start() -> Tracing:
        """Export by OTLP over HTTP.

        Raises:
            ModuleNotFoundError: the extra ``otel`` is not installed.
        """
        from hotbed.wire.telemetry import otlp_provider  # noqa: PLC0415

        return Tracing(otlp_provider("hotbed-ivy"))

    @contextlib.contextmanager
    def request(
        self, headers: dict[bytes, bytes], *, method: str, request_id: str, start: float
    ) -> Iterator[RequestTrace]:
        """The span of a request; within the context chunks find it.

        Args:
            headers: of the request.
            method: of the request.
            request_id: as the answer has it.
            start: `time.perf_counter()` at its arrival.
        """
        trace = RequestTrace(self, headers, method, request_id, start)
        token = _current.set(trace)
        try:
            yield trace
        finally:
            _current.reset(token)
            trace.span.end()

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


class RequestTrace:
    """The span of one request. See `Tracing.request`."""

    def __init__(
        self,
        tracing: Tracing,
        headers: dict[bytes, bytes],
        method: str,
        request_id: str,
        start: float,
    ) -> None:
        self.tracing = tracing
        self._method = method
        self._offset = time.time_ns() - time.perf_counter_ns()
        parent = tracing.telemetry.parent_context(
            headers.get(b"traceparent", b"").decode("latin-1"),
            headers.get(b"tracestate", b"").decode("latin-1"),
        )
        self.span = tracing.tracer.start_span(
            method,
            context=parent,
            kind=tracing.api.SpanKind.SERVER,
            start_time=int(start * 1e9) + self._offset,
            attributes={"http.request.method": method, "hotbed.request_id": request_id},
        )
        self.context = tracing.api.set_span_in_context(self.span)

    def answered(self, route: str, status: int, stages: Stages | None) -> None:
        """Note how it ended.

        Args:
            route: its name in the metrics.
            status: of the answer.
            stages: None where it did not come to an answer.
        """
        span = self.span
        span.update_name(f"{self._method} {route}")
        span.set_attribute("http.route", route)
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(self.tracing.api.Status(self.tracing.api.StatusCode.ERROR))
        if stages is None or not span.is_recording():
            return
        for name, begin, end in (
            ("parse", stages.read_at, stages.parsed_at),
            ("tokenize", stages.parsed_at, stages.parsed_at + stages.tokenize_ns),
            ("encode", stages.computed_at, stages.encoded_at),
        ):
            child = self.tracing.tracer.start_span(
                name, context=self.context, start_time=begin + self._offset
            )
            child.end(end + self._offset)


_current: ContextVar[RequestTrace | None] = ContextVar("request_trace", default=None)


class ChunkTrace:
    """The span of one chunk at one replica, if the request is traced; else nothing.

    Context manager; an error that leaves it is noted by its code.

    Args:
        address: of the replica.
        num_tokens: of the chunk.
        num_sequences: of the chunk.
    """

    __slots__ = ("_span", "_trace", "traceparent")

    def __init__(self, address: str, *, num_tokens: int, num_sequences: int) -> None:
        self._trace = trace = _current.get()
        self.traceparent = ""
        """What travels with the chunk."""
        if trace is None:
            return
        self._span = trace.tracing.tracer.start_span(
            "tulip",
            context=trace.context,
            kind=trace.tracing.api.SpanKind.CLIENT,
            attributes={
                "server.address": address,
                "hotbed.tokens": num_tokens,
                "hotbed.sequences": num_sequences,
            },
        )
        self.traceparent = trace.tracing.telemetry.traceparent_of(self._span)

    def answered(self, rows: pb.Rows) -> None:
        """Note what the replica says of its times."""
        if self._trace is not None:
            self._span.set_attribute("hotbed.queue_us", rows.timings.queue_us)
            self._span.set_attribute("hotbed.device_us", rows.timings.device_us)

    def __enter__(self) -> ChunkTrace:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._trace is None:
            return
        if error is not None:
            code = error.code.value if isinstance(error, HotbedError) else type(error).__name__
            self._span.set_attribute("error.type", code)
            api = self._trace.tracing.api
            self._span.set_status(api.Status(api.StatusCode.ERROR))
        self._span.end()
