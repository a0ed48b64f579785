"""OpenTelemetry spans of a request, from the client's trace down to the replica's step."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hotbed.ivy.tracing import Tracing
from tests.ivy.harness import in_process, scripted, settings_for

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
        scripted(info, addresses[0]),
        in_process(settings_for(addresses[0], traces=True), model) as (_, client),
    ):
        answer = await client.post(
            "/v1/embeddings",
            json={"input": "the cat"},
            headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"},
        )
        assert answer.status_code == 200
        bad = await client.post("/v1/embeddings", json={"input": ""})
        assert bad.status_code == 400
    spans = {span.name: span for span in exporter.get_finished_spans()[:6]}
    root = spans.pop("POST /v1/embeddings")
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{root.parent.span_id:016x}" == PARENT
    assert root.attributes["hotbed.request_id"] == "mine"
    assert root.attributes["http.response.status_code"] == 200
    assert list(spans) == ["parse", "tokenize", "tulip.queue", "rose.step", "encode"]
    for span in spans.values():
        assert span.parent.span_id == root.context.span_id
        assert root.start_time <= span.start_time <= span.end_time <= root.end_time
    # As the scripted replica says: 10 and 20 us.
    assert spans["tulip.queue"].end_time - spans["tulip.queue"].start_time == 10_000
    assert spans["rose.step"].end_time - spans["rose.step"].start_time == 20_000
    assert spans["rose.step"].start_time == spans["tulip.queue"].end_time
    (failed,) = exporter.get_finished_spans()[6:]
    assert failed.attributes["http.response.status_code"] == 400
    text = repr([span.to_json() for span in exporter.get_finished_spans()])
    assert "the cat" not in text


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
    for name in (b"POST /v1/embeddings", b"tulip.queue", b"rose.step", b"hotbed-ivy"):
        assert name in sent
