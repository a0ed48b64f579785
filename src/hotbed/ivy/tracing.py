"""OpenTelemetry traces, an extra that is off by default and then costs nothing.

A request is one server span, the child of the client's if it sent a `traceparent`. Its stages are
child spans, made when the answer is there: parse, tokenize and encode from the gateway's clock,
`tulip.queue` and `rose.step` from the times that the replica reports with its rows, set end to end
behind tokenizing. So nothing of it crosses the wire. Spans hold no text of a request.

Where spans go is said by OpenTelemetry's own environment (OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


@dataclass(frozen=True, slots=True)
class Stages:
    """When the stages of an answered request were, in nanoseconds of `time.perf_counter_ns`."""

    read_at: int
    parsed_at: int
    tokenize_ns: int
    queue_ns: int
    device_ns: int
    computed_at: int
    encoded_at: int


class Tracing:
    """Makes the spans. Build it with `start`, or over any provider in tests."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import propagate, trace  # noqa: PLC0415

        self._provider = provider
        self._tracer = provider.get_tracer("hotbed.ivy")
        self._extract = propagate.extract
        self._in_span = trace.set_span_in_context
        self._kind = trace.SpanKind.SERVER
        self._error = trace.Status(trace.StatusCode.ERROR)

    @staticmethod
    def start() -> Tracing:
        """Export by OTLP over HTTP.

        Raises:
            ModuleNotFoundError: the extra ``otel`` is not installed.
        """
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        resource = Resource.create()
        if str(resource.attributes["service.name"]).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "hotbed-ivy"}))
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return Tracing(provider)

    def record(
        self,
        headers: dict[bytes, bytes],
        *,
        method: str,
        route: str,
        status: int,
        request_id: str,
        start: float,
        stages: Stages | None,
    ) -> None:
        """Make the spans of one answered request.

        Args:
            headers: of the request.
            method: of the request.
            route: its name in the metrics.
            status: of the answer.
            request_id: as the answer has it.
            start: `time.perf_counter()` at its arrival.
            stages: None where it did not come to an answer.
        """
        now = time.time_ns()
        offset = now - time.perf_counter_ns()
        carrier = {
            name: headers[key].decode("latin-1")
            for name, key in (("traceparent", b"traceparent"), ("tracestate", b"tracestate"))
            if key in headers
        }
        span = self._tracer.start_span(
            f"{method} {route}",
            context=self._extract(carrier),
            kind=self._kind,
            start_time=int(start * 1e9) + offset,
            attributes={
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
                "hotbed.request_id": request_id,
            },
        )
        if status >= 500:
            span.set_status(self._error)
        if stages is not None and span.is_recording():
            context = self._in_span(span)
            tokenized_at = stages.parsed_at + stages.tokenize_ns
            started_at = tokenized_at + stages.queue_ns
            for name, begin, end in (
                ("parse", stages.read_at, stages.parsed_at),
                ("tokenize", stages.parsed_at, tokenized_at),
                ("tulip.queue", tokenized_at, started_at),
                ("rose.step", started_at, started_at + stages.device_ns),
                ("encode", stages.computed_at, stages.encoded_at),
            ):
                child = self._tracer.start_span(name, context=context, start_time=begin + offset)
                child.end(end + offset)
        span.end(now)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
