"""OpenTelemetry spans of a request, from the client's trace down to the replica's step."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hotbed.core.errors import ErrorCode
from hotbed.ivy.tracing import Tracing
from hotbed.tulip.testing import FakeEngine
from hotbed.tulip.tracing import Tracing as TulipTracing
from tests.ivy.asking import failing
from tests.ivy.harness import in_process, info_for, real_tulip, scripted, settings_for

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def exporter(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(Tracing, "start", lambda: Tracing(provider))
    return exporter


async def test_a_request_is_a_span_with_its_stages_below(model, info, addresses, exporter):
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0], traces=True), model) as (_, client),
    ):
        answer = await client.post(
            "/v1/embeddings",
            json={"input": "the cat"},
            headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"},
        )
        assert answer.status_code == 200
        assert (await client.get("/health")).status_code == 200  # probes are no spans
        bad = await client.post("/v1/embeddings", json={"input": ""})
        assert bad.status_code == 400
    spans = {span.name: span for span in exporter.get_finished_spans()[:5]}
    root = spans.pop("POST /v1/embeddings")
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{root.parent.span_id:016x}" == PARENT
    assert root.attributes["hotbed.request_id"] == "mine"
    assert root.attributes["http.response.status_code"] == 200
    assert sorted(spans) == ["encode", "parse", "tokenize", "tulip"]
    for span in spans.values():
        assert span.parent.span_id == root.context.span_id
        assert root.start_time <= span.start_time <= span.end_time <= root.end_time
    chunk = spans["tulip"]
    assert spans["tokenize"].end_time <= chunk.start_time
    assert chunk.attributes["server.address"] == addresses[0]
    assert (chunk.attributes["hotbed.tokens"], chunk.attributes["hotbed.sequences"]) == (4, 1)
    # As the scripted replica says: 10 and 20 us.
    assert chunk.attributes["hotbed.queue_us"] == 10
    assert chunk.attributes["hotbed.device_us"] == 20
    (item,) = tulip.items
    assert item.traceparent == f"00-{TRACE}-{chunk.context.span_id:016x}-01"
    (failed,) = exporter.get_finished_spans()[5:]
    assert failed.attributes["http.response.status_code"] == 400
    text = repr([span.to_json() for span in exporter.get_finished_spans()])
    assert "the cat" not in text


async def test_each_chunk_and_each_attempt_has_a_span(model, info, addresses, exporter):
    async with (
        scripted(info, addresses[0]) as first,
        scripted(info, addresses[1]),
        in_process(settings_for(*addresses[:2], traces=True), model) as (_, client),
    ):
        first.answer = failing(ErrorCode.UNAVAILABLE)
        answer = await client.post("/v1/embeddings", json={"input": ["the cat"] * 40})
        assert answer.status_code == 200
    chunks = [span for span in exporter.get_finished_spans() if span.name == "tulip"]
    good = [span for span in chunks if "error.type" not in span.attributes]
    bad = [span for span in chunks if "error.type" in span.attributes]
    assert sum(span.attributes["hotbed.sequences"] for span in good) == 40
    assert {span.attributes["server.address"] for span in good} == {addresses[1]}
    assert bad
    assert {span.attributes["error.type"] for span in bad} == {"unavailable"}
    assert len({span.parent.span_id for span in chunks}) == 1


async def test_what_is_not_sampled_travels_without_a_trace(model, info, addresses, exporter):
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0], traces=True), model) as (_, client),
    ):
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
        await client.post("/v1/embeddings", json={"input": "the cat"}, headers=headers)
        await client.post(
            "/v1/embeddings", json={"input": "the cat"}, headers={"traceparent": "nonsense"}
        )
    assert [bool(item.traceparent) for item in tulip.items] == [False, True]
    assert TRACE not in {f"{s.context.trace_id:032x}" for s in exporter.get_finished_spans()}


async def test_a_trace_goes_through_tulip_down_to_the_steps(
    tokenizer, model, addresses, exporter, monkeypatch
):
    theirs = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(theirs))
    monkeypatch.setattr(TulipTracing, "start", lambda: TulipTracing(provider))
    async with (
        real_tulip(FakeEngine(info_for(tokenizer)), addresses[0], traces=True),
        in_process(settings_for(addresses[0], traces=True), model) as (_, client),
    ):
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        answer = await client.post("/v1/embeddings", json={"input": "the cat"}, headers=headers)
        assert answer.status_code == 200
    ours = {span.name: span for span in exporter.get_finished_spans()}
    spans = {span.name: span for span in theirs.get_finished_spans()}
    assert sorted(spans) == ["rose.step", "tulip.item", "tulip.queue"]
    item = spans.pop("tulip.item")
    assert item.parent.span_id == ours["tulip"].context.span_id
    for span in spans.values():
        assert span.parent.span_id == item.context.span_id
        assert f"{span.context.trace_id:032x}" == TRACE


def test_without_traces_nothing_of_opentelemetry_is_loaded():
    code = "import sys, hotbed.ivy.app; assert not [m for m in sys.modules if 'telemetry' in m]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# The exporter leaves its socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_spans_leave_by_otlp(model, info, addresses, monkeypatch):
    """The real exporter, against a collector of a few lines."""
    import gc
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    received = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{collector.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        async with (
            scripted(info, addresses[0]),
            in_process(settings_for(addresses[0], traces=True), model) as (_, client),
        ):
            await client.post("/v1/embeddings", json={"input": "the cat"})
        collector.shutdown()
    gc.collect()
    assert {path for path, _ in received} == {"/v1/traces"}
    sent = b"".join(body for _, body in received)
    for name in (b"POST /v1/embeddings", b"tokenize", b"tulip", b"hotbed-ivy"):
        assert name in sent
