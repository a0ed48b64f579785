"""Who may come in and how: API keys, other origins, TLS, headers that are too large, the log."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import shutil
import ssl
import subprocess

import httpx
import pytest

from hotbed.core.errors import HotbedError
from hotbed.core.log_format import JsonFormatter
from hotbed.ivy.keys import ApiKeys
from hotbed.ivy.protocol import MAX_HEADER_BYTES
from tests.ivy.harness import in_process, scripted, serving, settings_for

BODY = {"input": "the cat"}


def key_file(tmp_path, *keys: str):
    path = tmp_path / "keys"
    lines = [f"{hashlib.sha256(key.encode()).hexdigest()}  someone" for key in keys]
    path.write_text("# keys\n\n" + "\n".join(lines))
    return path


@pytest.fixture
async def replica(info, addresses):
    async with scripted(info, addresses[0]):
        yield addresses[0]


async def test_only_good_keys_are_let_in(model, replica, tmp_path):
    settings = settings_for(replica, api_keys_file=key_file(tmp_path, "one", "two"))
    async with in_process(settings, model) as (_, client):
        for headers in (
            {"Authorization": "Bearer one"},
            {"authorization": "bearer two"},
            {"X-Api-Key": "two"},
        ):
            answer = await client.post("/v1/embeddings", json=BODY, headers=headers)
            assert answer.status_code == 200, headers
        for headers in (
            {},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer three"},
            {"Authorization": "Basic one"},
            {"Authorization": "one"},
            {"X-Api-Key": ""},
            {"X-Api-Key": hashlib.sha256(b"one").hexdigest()},
        ):
            for path in ("/v1/embeddings", "/embed", "/v2/embed", "/tokenize"):
                answer = await client.post(path, json=BODY, headers=headers)
                assert answer.status_code == 401, (path, headers)
                assert answer.headers["www-authenticate"] == "Bearer"
                assert "one" not in answer.text.replace("none", "")
            assert (await client.get("/v1/models", headers=headers)).status_code == 401
        for path in ("/health", "/ready", "/metrics", "/docs", "/openapi.json"):
            assert (await client.get(path)).status_code == 200, path


@pytest.mark.parametrize(
    ("text", "says"), [("", "no key"), ("secret-key", "line 1"), ("\n" + "0" * 63, "line 2")]
)
def test_a_file_of_keys_that_cannot_work_is_refused_and_not_shown(tmp_path, text, says):
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(HotbedError, match=says) as caught:
        ApiKeys.read(path)
    assert "secret" not in caught.value.message


async def test_every_hash_is_looked_at_whatever_the_key(monkeypatch):
    looked_at = []

    def compare(a, b):
        looked_at.append(b)
        return a == b

    monkeypatch.setattr("hotbed.ivy.keys.hmac.compare_digest", compare)
    hashes = [hashlib.sha256(key).digest() for key in (b"a", b"b", b"c")]
    ApiKeys(hashes).check({b"x-api-key": b"a"})
    assert looked_at == hashes


async def test_pages_of_allowed_origins_may_read_answers(model, replica):
    settings = settings_for(replica, cors_origins=("https://a.example",))
    async with in_process(settings, model) as (_, client):
        good, bad = {"Origin": "https://a.example"}, {"Origin": "https://b.example"}
        answer = await client.post("/v1/embeddings", json=BODY, headers=good)
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        assert "x-hotbed-fingerprint" in answer.headers["access-control-expose-headers"]
        error = await client.post("/v1/embeddings", json={}, headers=good)
        assert error.headers["access-control-allow-origin"] == "https://a.example"
        for headers in (bad, {}):
            answer = await client.post("/v1/embeddings", json=BODY, headers=headers)
            assert "access-control-allow-origin" not in answer.headers
            assert answer.headers["vary"] == "origin"
        asked = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        preflight = await client.options("/v1/embeddings", headers={**good, **asked})
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-methods"] == "POST"
        assert preflight.headers["access-control-allow-headers"] == "authorization,content-type"
        refused = await client.options("/v1/embeddings", headers={**bad, **asked})
        assert "access-control-allow-origin" not in refused.headers


async def test_a_preflight_needs_no_key(model, replica, tmp_path):
    settings = settings_for(replica, cors_origins=("*",), api_keys_file=key_file(tmp_path, "one"))
    async with in_process(settings, model) as (_, client):
        headers = {"Origin": "https://x", "Access-Control-Request-Method": "POST"}
        preflight = await client.options("/v1/embeddings", headers=headers)
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == "*"


async def test_without_the_setting_no_origin_is_allowed(model, replica):
    async with in_process(settings_for(replica), model) as (_, client):
        answer = await client.get("/health", headers={"Origin": "https://a.example"})
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def say(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: ivy\r\nX-Long: " + b"x" * MAX_HEADER_BYTES + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: ivy\r\n" + b"X-Y: z\r\n" * 9000 + b"\r\n",
        b"GET /health?" + b"x" * MAX_HEADER_BYTES + b" HTTP/1.1\r\nHost: ivy\r\n\r\n",
        # Never ends, so that only the bound can stop it.
        b"GET /health HTTP/1.1\r\nHost: ivy\r\nX-Endless: " + b"x" * (MAX_HEADER_BYTES + 1),
    ],
)
async def test_headers_are_bounded(model, replica, head):
    async with serving(settings_for(replica), model) as ivy:
        answer = await say(ivy.port, head)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "headers_too_large"
        async with ivy.client() as client:
            assert (await client.get("/health")).status_code == 200


async def test_a_connection_that_says_nothing_is_closed(model, replica, monkeypatch):
    monkeypatch.setattr("hotbed.ivy.protocol.HEADER_TIMEOUT_S", 0.05)
    async with serving(settings_for(replica), model) as ivy:
        assert await say(ivy.port, b"GET /health HTTP/1.1\r\nHost:") == b""


async def test_headers_of_usual_size_pass_again_and_again_on_one_connection(model, replica):
    async with serving(settings_for(replica), model) as ivy, ivy.client() as client:
        for _ in range(5):
            answer = await client.get("/health", headers={"X-Long": "x" * (MAX_HEADER_BYTES // 2)})
            assert answer.status_code == 200


@pytest.mark.parametrize(
    "noise", [b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"]
)
async def test_what_is_no_http_is_400_in_json(model, replica, noise):
    async with serving(settings_for(replica), model) as ivy:
        answer = await say(ivy.port, noise)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate with openssl")
async def test_https(model, replica, tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    settings = settings_for(replica, tls_certfile=cert, tls_keyfile=key)
    trusted = ssl.create_default_context(cafile=cert)
    async with (
        serving(settings, model) as ivy,
        httpx.AsyncClient(
            base_url=f"https://127.0.0.1:{ivy.port}", verify=trusted, trust_env=False
        ) as client,
    ):
        answer = await client.post("/v1/embeddings", json=BODY)
        assert answer.status_code == 200


async def test_the_access_log_has_facts_and_no_text(model, replica, caplog):
    caplog.set_level(logging.INFO, "hotbed.ivy.access")
    async with in_process(settings_for(replica, access_log=True), model) as (_, client):
        headers = {"X-Request-Id": "mine"}
        await client.post("/v1/embeddings", json={"input": "hunter2 secret"}, headers=headers)
        await client.post("/v1/embeddings", json={"hunter2": 1}, headers=headers)
        await client.get("/hunter2?hunter2=1", headers=headers)
    records = [r for r in caplog.records if r.name == "hotbed.ivy.access"]
    lines = [json.loads(JsonFormatter().format(record)) for record in records]
    assert [(line["route"], line["status"]) for line in lines] == [
        ("/v1/embeddings", 200), ("/v1/embeddings", 400), ("other", 404),
    ]  # fmt: skip
    assert all(line["request_id"] == "mine" and line["ms"] >= 0 for line in lines)
    assert "hunter2" not in caplog.text


def test_a_json_line_holds_the_exception():
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        import sys

        record = logging.LogRecord("n", logging.ERROR, "p", 1, "m %s", ("x",), sys.exc_info())
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["message"]) == ("error", "m x")
    assert "RuntimeError: broken" in line["exception"]
