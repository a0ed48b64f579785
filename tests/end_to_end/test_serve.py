"""The whole building on one machine, with real weights: answers, failures, the end."""

from __future__ import annotations

import dataclasses
import http.client
import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import openai
import psutil
import pytest
from numpy.typing import NDArray

from hotbed.bulk.command import embed_files
from hotbed.bulk.local import ModelOptions
from hotbed.bulk.options import JobOptions
from hotbed.bulk.search import manifests_of, model_of, search
from tests.end_to_end.service import MODEL, TEXTS, Answer, Service, ask, get, load, running

pytestmark = [pytest.mark.weights, pytest.mark.slow]

# One text alone and in any batch: float32 sums in another order.
ROW_TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def two_replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    log = tmp_path_factory.mktemp("serve") / "log"
    with running(log, "--replicas", "2", "--workers", "2") as service:
        yield service


@pytest.fixture(scope="module")
def expected(two_replicas: Service) -> NDArray[np.float32]:
    """Rows of TEXTS, got with OpenAI's client in one request."""
    return embed(two_replicas, TEXTS)


def assert_right(answers: list[Answer], expected: NDArray[np.float32]) -> None:
    for answer in answers:
        assert answer.row is not None
        np.testing.assert_allclose(answer.row, expected[answer.text], atol=ROW_TOLERANCE)


def test_openai_client_gets_the_models_rows(expected: NDArray[np.float32]) -> None:
    assert expected.shape == (len(TEXTS), 384)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=ROW_TOLERANCE)
    # Not one row for all, and related texts are nearer: "red green" to "green red".
    near = expected[TEXTS.index("red green")] @ expected[TEXTS.index("green red")]
    far = expected[TEXTS.index("red green")] @ expected[TEXTS.index("quick slow")]
    assert near > 0.9 > far


def test_ready_says_how_many_replicas_are_up(two_replicas: Service) -> None:
    for _ in range(10):  # a new connection each: some come to either worker
        status, body = get(two_replicas, "/ready")
        assert status == 200
        assert json.loads(body)["num_up"] == 2


def test_killed_replica_loses_no_request(
    two_replicas: Service, expected: NDArray[np.float32]
) -> None:
    victim = two_replicas.children("hotbed.tulip")[0]
    answers = load(two_replicas, 2000, after=500, act=victim.kill)
    assert len(answers) == 2000
    assert [a for a in answers if a.status != 200] == []
    assert_right(answers, expected)
    assert "ended with SIGKILL; starting again in 0.1 s" in two_replicas.log()


def test_only_replica_killed_gives_clear_503_and_then_answers_again(
    tmp_path: Path, expected: NDArray[np.float32]
) -> None:
    # A short wait, so that some requests give up before the replica is back.
    options = ("--workers", "1", "--ivy.unavailable-wait-s", "0.2")
    with running(tmp_path / "log", *options) as service:
        (victim,) = service.children("hotbed.tulip")
        answers = load(service, 300, after=100, act=victim.kill, concurrency=8)
        assert len(answers) == 300
        unserved = [a for a in answers if a.status != 200]
        assert unserved
        for answer in unserved:
            assert answer.status == 503, answer
            assert answer.retry_after is not None
            assert json.loads(answer.error)["error"]["message"]
        assert_right([a for a in answers if a.status == 200], expected)

        connection = http.client.HTTPConnection(urlsplit(service.base_url).netloc, timeout=60)
        give_up = time.monotonic() + 60
        while (answer := ask(connection, 0)).status == 503 and time.monotonic() < give_up:
            assert answer.retry_after is not None
            time.sleep(float(answer.retry_after))  # what a client is told to do
        connection.close()
        assert_right([answer], expected)

        # The supervisor killed: nothing may stay behind with the port, the sockets or the model.
        children = service.children()
        assert len(children) == 2
        service.process.kill()
        _, left = psutil.wait_procs(children, timeout=20)
        assert left == []


def test_stop_finishes_what_was_accepted_and_takes_nothing_new(tmp_path: Path) -> None:
    texts = [" ".join(TEXTS[i : i + 12]) for i in range(40)]  # some 1,000 tokens a request
    service_runs = running(tmp_path / "log", "--workers", "1")
    with service_runs as service, ThreadPoolExecutor(8) as pool:
        children = service.children()
        (replica,) = service.children("hotbed.tulip")
        replica.suspend()  # or the first may be answered before the last is asked
        requests = [pool.submit(embed, service, texts) for _ in range(8)]
        wait_for_requests_in_flight(service, 8)
        service.process.terminate()
        replica.resume()
        rows = [request.result() for request in requests]
        assert service.process.wait(timeout=20) == 0
        assert [child for child in children if child.is_running()] == []
        with pytest.raises(ConnectionRefusedError):
            get(service, "/health")
    for each in rows:
        assert each.shape == (40, 384)
        np.testing.assert_allclose(each, rows[0], atol=ROW_TOLERANCE)


def embed(service: Service, texts: list[str]) -> NDArray[np.float32]:
    with openai.OpenAI(
        base_url=f"{service.base_url}/v1", api_key="unused", max_retries=0
    ) as client:
        answer = client.embeddings.create(model=MODEL, input=texts)
    return np.array([item.embedding for item in answer.data], dtype=np.float32)


def test_vectors_of_a_job_through_the_service_have_the_fingerprint_of_a_local_one(
    two_replicas: Service, tmp_path: Path
) -> None:
    (tmp_path / "c.txt").write_text("\n".join(TEXTS))
    given, model = [str(tmp_path / "c.txt")], ModelOptions(model=MODEL)
    for name, endpoint in (("local", None), ("there", two_replicas.base_url)):
        options = JobOptions(out=tmp_path / name, format="lines", endpoint=endpoint)
        embed_files(given, options, model, output=io.StringIO())
    here, there = (manifests_of(tmp_path / name)[0].recipe for name in ("local", "there"))
    assert there.fingerprint == here.fingerprint
    found = search(tmp_path / "there", TEXTS[0], 1, model_of(tmp_path / "there"))
    assert found[0].columns["text"] == TEXTS[0]
    # Other wishes are another recipe, with or without a server.
    options = JobOptions(out=tmp_path / "raw", format="lines", endpoint=two_replicas.base_url)
    embed_files(given, options, dataclasses.replace(model, dimensions=64), output=io.StringIO())
    assert manifests_of(tmp_path / "raw")[0].recipe.fingerprint != here.fingerprint
    assert search(tmp_path / "raw", TEXTS[0], 1, model_of(tmp_path / "raw"))


def wait_for_requests_in_flight(service: Service, number: int) -> None:
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        if f"hotbed_ivy_requests_in_flight {number}.0" in get(service, "/metrics")[1].decode():
            return
    raise AssertionError(f"never were {number} requests in flight")


def test_model_that_does_not_exist_is_told_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ends = pytest.raises(AssertionError, match="ended before it was ready")
    with ends, running(log, "no-such-model"):
        pass
    assert "'no-such-model' is no folder" in log.read_text()
    assert "gives up: tulip-0 cannot run with these settings" in log.read_text()
