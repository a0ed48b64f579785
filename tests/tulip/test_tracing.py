"""Spans of traced items: times that fit, steps of a split item, nothing kept of the others."""

from __future__ import annotations

import subprocess
import sys

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hotbed.tulip.tracing import Tracing
from hotbed.wire import tulip_pb2 as pb
from tests.tulip.conftest import WAIT_S, StartTulip, ragged

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
METADATA = (("traceparent", f"00-{TRACE}-{PARENT}-01"),)


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> tuple[Tracing, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    made = Tracing(provider)
    monkeypatch.setattr(Tracing, "start", lambda: made)
    return made, exporter


def request(*lengths: int) -> pb.EmbedRequest:
    return pb.EmbedRequest(batch=ragged([[1] * n for n in lengths]))


async def test_an_item_has_its_wait_and_every_step_below(
    tracing: tuple[Tracing, InMemorySpanExporter], start_tulip: StartTulip
) -> None:
    made, exporter = tracing
    tulip = await start_tulip(traces=True, max_step_tokens=8, max_steps_in_flight=1)
    # Two sequences of 6 tokens do not share a step of 8.
    await tulip.stub.Embed(request(6, 6), metadata=METADATA, timeout=WAIT_S)
    await tulip.embed([[1, 2]])  # without a trace
    spans = exporter.get_finished_spans()
    assert [s.name for s in spans] == ["tulip.queue", "rose.step", "rose.step", "tulip.item"]
    queue, first, second, item = spans
    assert f"{item.parent.span_id:016x}" == PARENT
    assert {f"{s.context.trace_id:032x}" for s in spans} == {TRACE}
    assert dict(item.attributes) == {"hotbed.tokens": 12, "hotbed.sequences": 2}
    for step in (first, second):
        assert dict(step.attributes) == {"hotbed.step_tokens": 6, "hotbed.step_sequences": 1}
    assert item.start_time == queue.start_time <= queue.end_time == first.start_time
    assert first.end_time <= second.start_time < second.end_time <= item.end_time
    assert not made._steps


async def test_a_failed_step_and_its_item_say_so(
    tracing: tuple[Tracing, InMemorySpanExporter], start_tulip: StartTulip
) -> None:
    made, exporter = tracing
    tulip = await start_tulip(traces=True)
    tulip.engine.fail_next(RuntimeError("scripted"))
    with pytest.raises(grpc.RpcError):
        await tulip.stub.Embed(request(3), metadata=METADATA, timeout=WAIT_S)
    by_name = {span.name: span for span in exporter.get_finished_spans()}
    assert by_name["rose.step"].attributes["error.type"] == "RuntimeError"
    assert by_name["tulip.item"].attributes["error.type"] == "internal"
    assert not made._steps


async def test_nothing_is_kept_of_an_item_that_was_taken_back(
    tracing: tuple[Tracing, InMemorySpanExporter], start_tulip: StartTulip
) -> None:
    made, exporter = tracing
    tulip = await start_tulip(traces=True)
    tulip.engine.hold()
    call = tulip.stub.Embed(request(3), metadata=METADATA, timeout=WAIT_S)
    await tulip.begun(1)
    call.cancel()
    while not exporter.get_finished_spans():  # its answer is made when the cancel arrives
        await tulip.stub.Info(pb.InfoRequest(), timeout=WAIT_S)
    tulip.engine.release()
    await tulip.embed([[1]])  # behind the step that was held
    (item,) = [s for s in exporter.get_finished_spans() if s.name == "tulip.item"]
    assert item.attributes["error.type"] == "cancelled"
    assert not made._steps


def test_without_traces_nothing_of_opentelemetry_is_loaded() -> None:
    code = (
        "import sys, hotbed.tulip.server; assert not [m for m in sys.modules if 'telemetry' in m]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
