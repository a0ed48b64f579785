"""All the other routes, and what no route has."""

from __future__ import annotations

import json
import os

import httpx
import msgspec
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from hotbed.ivy.errors import ErrorAnswer
from hotbed.ivy.models import Model, ModelList
from hotbed.ivy.status import Health, Readiness, StatusAnswer
from tests.ivy.harness import (
    MODEL,
    info_for,
    model_for,
    scripted,
    serving,
    settings_for,
    unix_address,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tokenizer, tmp_path_factory):
    address = unix_address(tmp_path_factory.mktemp("routes"))
    async with (
        scripted(info_for(tokenizer), address),
        serving(settings_for(address), model_for(tokenizer)) as ivy,
        ivy.client() as client,
    ):
        yield client


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/models/"])
async def test_the_model_list_has_every_name(client: httpx.AsyncClient, path: str):
    answer = await client.get(path)
    models = msgspec.json.decode(answer.content, type=ModelList)
    assert [model.id for model in models.data] == [MODEL, "tiny", "alias"]


@pytest.mark.parametrize("name", [MODEL, "tiny", "alias"])
async def test_a_model_by_its_name_also_with_a_slash(client: httpx.AsyncClient, name: str):
    model = msgspec.json.decode((await client.get(f"/v1/models/{name}")).content, type=Model)
    assert model.id == name
    assert (model.dimensions, model.max_model_len, model.normalize) == (32, 64, True)
    quoted = await client.get(f"/v1/models/{name.replace('/', '%2F')}")
    assert quoted.status_code == 200


async def test_an_unknown_model_is_404(client: httpx.AsyncClient):
    answer = await client.get("/v1/models/gpt")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert MODEL in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/health/"])
async def test_health(client: httpx.AsyncClient, path: str):
    answer = await client.get(path)
    assert answer.status_code == 200
    msgspec.json.decode(answer.content, type=Health)


async def test_ready_lists_the_replicas(client: httpx.AsyncClient):
    answer = await client.get("/ready")
    assert answer.status_code == 200
    ready = msgspec.json.decode(answer.content, type=Readiness)
    assert (ready.status, ready.num_up, ready.min_ready_replicas) == ("ready", 1, 1)
    assert [replica.state for replica in ready.replicas] == ["up"]


async def test_metrics_count_what_happened_under_bounded_labels(client: httpx.AsyncClient):
    await client.post("/v1/embeddings", json={"input": ["a", "b"]})
    for path in ("/nothing", "/nothing/else", "/v1/models/x", "/v1/models/y"):
        await client.get(path)
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    requests = {
        dict(labels)["route"]: value
        for (name, labels), value in samples.items()
        if name == "hotbed_ivy_requests_total" and dict(labels)["status"] in ("200", "404")
    }
    assert requests["/v1/embeddings"] == 1
    assert requests["other"] >= 2
    assert not any("nothing" in route or "/x" in route for route in requests)
    assert samples["hotbed_ivy_inputs_total", (("model", MODEL),)] == 2
    assert samples["hotbed_ivy_tokens_total", (("model", MODEL),)] == 6
    assert samples["hotbed_ivy_requests_in_flight", ()] == 0
    for stage in ("parse", "tokenize", "queue", "device", "encode"):
        assert samples["hotbed_ivy_stage_seconds_count", (("stage", stage),)] == 1
    of_route = (("route", "/v1/embeddings"),)
    assert samples["hotbed_ivy_request_seconds_count", of_route] == 1
    assert samples["hotbed_ivy_request_tokens_sum", (("model", MODEL),)] == 6


async def test_openapi_and_docs(client: httpx.AsyncClient):
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    page = await client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "openapi.json" in page.text
    root = await client.get("/")
    assert root.headers["content-type"].startswith("text/html")
    assert "Similarity" in root.text


async def test_status_has_the_models_the_replicas_and_what_was_done(client: httpx.AsyncClient):
    before = msgspec.json.decode((await client.get("/status")).content, type=StatusAnswer)
    await client.post("/v1/embeddings", json={"input": ["a", "b"]})
    await client.post("/embed", json={"inputs": "a"})
    await client.post("/embed", json={"inputs": ""})
    after = msgspec.json.decode((await client.get("/status")).content, type=StatusAnswer)
    assert after.ready == "ready"
    assert after.worker.requests - before.worker.requests == 2
    assert after.worker.tokens - before.worker.tokens == 9
    assert after.worker.chunks - before.worker.chunks == 2
    assert after.worker.requests_in_flight == 0
    for name, stage in after.worker.stages.items():
        seen = stage.count - before.worker.stages[name].count
        assert seen == (3 if name == "parse" else 2), name
    (model,) = after.models
    assert (model.names[0], model.task, model.dimensions) == (MODEL, "embed", 32)
    (replica,) = model.replicas
    assert (replica.state, replica.outstanding_tokens, replica.num_in_flight) == ("up", 0, 0)
    assert model.pending_tokens == 0
    assert after.worker.pid == before.worker.pid == os.getpid()
    # This replica is of a version that knows no Stats.
    assert replica.load is None


async def test_the_openapi_document_names_only_paths_that_are_there(client: httpx.AsyncClient):
    document = (await client.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        for method in methods:
            answer = await client.request(method, path.replace("{id}", "tiny"))
            assert answer.status_code not in (404, 405), (method, path)


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/embeddings/x", "/v2/embeddings"])
async def test_unknown_paths_are_404_in_json(client: httpx.AsyncClient, path: str):
    answer = await client.get(path)
    assert answer.status_code == 404
    error = msgspec.json.decode(answer.content, type=ErrorAnswer).error
    assert error.code == "not_found"
    assert "/v1/embeddings" in error.message


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/embeddings", "POST, OPTIONS"),
        ("PUT", "/v1/embeddings", "POST, OPTIONS"),
        ("HEAD", "/v1/embeddings", "POST, OPTIONS"),
        ("POST", "/health", "GET, HEAD, OPTIONS"),
        ("DELETE", "/v1/models/tiny", "GET, HEAD, OPTIONS"),
    ],
)
async def test_a_wrong_method_is_405_and_told_which(client, method: str, path: str, allow: str):
    answer = await client.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allow
    if method != "HEAD":
        assert answer.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/docs", "/metrics"])
async def test_head_is_get_without_the_body(client: httpx.AsyncClient, path: str):
    answer = await client.head(path)
    assert answer.status_code == 200
    assert answer.content == b""
    assert int(answer.headers["content-length"]) > 0


async def test_options_names_the_methods(client: httpx.AsyncClient):
    answer = await client.options("/v1/embeddings")
    assert answer.status_code == 204
    assert answer.headers["allow"] == "POST, OPTIONS"
    assert "content-length" not in answer.headers


async def test_an_unread_body_does_not_spoil_the_connection(client: httpx.AsyncClient):
    body = json.dumps({"input": ["x" * 1000] * 1000}).encode()
    for path, status in (("/nothing", 404), ("/health", 405), ("/v1/embeddings", 415)):
        answer = await client.post(path, content=body)
        assert answer.status_code == status
        assert (await client.get("/health")).status_code == 200
