"""OpenTelemetry on both ends of the wire: where spans go, and whose child a span is.

An extra (``otel``), imported only when traces are switched on. Where spans go is said by
OpenTelemetry's own environment (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME,
OTEL_TRACES_SAMPLER). Spans hold no text and no token ids.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span


def otlp_provider(service_name: str) -> TracerProvider:
    """A provider whose spans are exported by OTLP over HTTP, from a thread of its own.

    Args:
        service_name: where the environment names none.

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
        resource = resource.merge(Resource({"service.name": service_name}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def parent_context(traceparent: str, tracestate: str = "") -> Context:
    """The context of the caller's span; an empty or broken header gives a trace of its own."""
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
        TraceContextTextMapPropagator,
    )

    carrier = {"traceparent": traceparent, "tracestate": tracestate}
    return TraceContextTextMapPropagator().extract({k: v for k, v in carrier.items() if v})


def traceparent_of(span: Span) -> str:
    """The header for the span's children; empty if the span is not sampled."""
    context = span.get_span_context()
    if not context.trace_flags.sampled:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def wall_clock_offset_ns() -> int:
    """What to add to a time of `time.monotonic_ns` to get a span's time."""
    return time.time_ns() - time.monotonic_ns()
