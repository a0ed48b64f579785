"""Spans of traced items: their wait in the queue and the steps of ROSE that computed them.

An item is traced if its caller sent the context of a span (`traceparent`). Its spans are made when
it is answered, from times that the scheduler notes anyway; items that are not traced cost one look
at an empty string. An extra (``otel``), off by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotbed.core.errors import HotbedError
from hotbed.tulip.work import Answer, Item, Step

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span


class Tracing:
    """Makes the spans; every method on the event loop. Build it with `start`, or for tests.

    Times are those of `time.monotonic`, in seconds.
    """

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace  # noqa: PLC0415

        from hotbed.wire import telemetry  # noqa: PLC0415

        self._provider = provider
        self._tracer = provider.get_tracer("hotbed.tulip")
        self._api, self._telemetry = trace, telemetry
        # Steps of items that are not answered yet: (step, its end, name of its error).
        self._steps: dict[Item, list[tuple[Step, float, str | None]]] = {}

    @staticmethod
    def start() -> Tracing:
        """Export by OTLP over HTTP.

        Raises:
            ModuleNotFoundError: the extra ``otel`` is not installed.
        """
        from hotbed.wire.telemetry import otlp_provider  # noqa: PLC0415

        return Tracing(otlp_provider("hotbed-tulip"))

    def step_ended(self, step: Step, now: float, error: BaseException | None = None) -> None:
        """A step gave its result or raised; to be told before its items are answered."""
        name = None if error is None else type(error).__name__
        for part in step.parts():
            if part.item.traceparent and not part.item.is_answered:
                self._steps.setdefault(part.item, []).append((step, now, name))

    def answered(self, answer: Answer, now: float) -> None:
        """An item was answered."""
        item = answer.item
        if not item.traceparent:
            return
        steps = self._steps.pop(item, [])
        offset = self._telemetry.wall_clock_offset_ns()

        def at(seconds: float) -> int:
            return int(seconds * 1e9) + offset

        span = self._tracer.start_span(
            "tulip.item",
            context=self._telemetry.parent_context(item.traceparent),
            kind=self._api.SpanKind.SERVER,
            start_time=at(item.accepted_at),
            attributes={
                "hotbed.tokens": item.num_tokens,
                "hotbed.sequences": item.num_sequences,
            },
        )
        context = self._api.set_span_in_context(span)
        first_start = steps[0][0].started_at if steps else now
        queue = self._tracer.start_span(
            "tulip.queue", context=context, start_time=at(item.accepted_at)
        )
        queue.end(at(max(first_start, item.accepted_at)))
        for step, ended_at, error in steps:
            child = self._tracer.start_span(
                "rose.step",
                context=context,
                start_time=at(step.started_at),
                # Of the whole step: what the item shared it with.
                attributes={
                    "hotbed.step_tokens": step.num_tokens,
                    "hotbed.step_sequences": step.num_sequences,
                },
            )
            if error is not None:
                self._fail(child, error)
            child.end(at(ended_at))
        if isinstance(answer.result, HotbedError):
            self._fail(span, answer.result.code.value)
        span.end(at(now))

    def _fail(self, span: Span, kind: str) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._api.Status(self._api.StatusCode.ERROR))

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
