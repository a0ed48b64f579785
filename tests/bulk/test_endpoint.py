"""Jobs through a running Hotbed: retries, rows that it refuses, order, a bound on requests."""

from __future__ import annotations

import datetime
import email.utils
import io
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow.parquet as pq
import pybase64
import pytest

from hotbed.bulk import endpoint as module
from hotbed.bulk.endpoint import EndpointBackend
from hotbed.bulk.job import run_job
from hotbed.bulk.options import JobOptions
from hotbed.bulk.runner import InProcess
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.exit_codes import EXIT_INTERRUPTED
from tests.bulk.jobs import texts, write_jsonl

# What runs in a shell's background, as tests may, ignores Ctrl-C, and so do its children.
MAIN_WITH_CTRL_C = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from hotbed.cli import main; main()"
)
LIMIT = 14
TEXTS = texts(500)


def row(text: str) -> np.ndarray:
    words = text.split()
    return np.array([len(words), len(text), hash(text) % 1000, 1], dtype="<f4")


def read_request(connection: socket.socket) -> None:
    """Headers and body, which may come apart."""
    held = b""
    while b"\r\n\r\n" not in held:
        held += connection.recv(1 << 16) or pytest.fail("the connection has ended")
    headers, _, body = held.lower().partition(b"\r\n\r\n")
    missing = int(headers.partition(b"content-length:")[2].split()[0]) - len(body)
    while missing > 0:
        missing -= len(connection.recv(missing)) or pytest.fail("the connection has ended")


class Server:
    """Answers as Hotbed does, with rows that can be checked; `before` may answer instead."""

    def __init__(self) -> None:
        self.before: Callable[[httpx.Request], httpx.Response | None] = lambda request: None
        self.fingerprint = "0123456789abcdef"
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            return self.before(request) or self._answer(orjson.loads(request.content))
        finally:
            with self._lock:
                self._now -= 1

    def _answer(self, body: dict[str, Any]) -> httpx.Response:
        given: list[str] = body["input"]
        for index, text in enumerate(given):
            if text == "\x00":
                return self._refuse(index, "holds no text: it is empty, white space only.")
            if len(text.split()) > LIMIT and not body["truncate"]:
                return self._refuse(index, f"has 99 tokens, the limit is {LIMIT} (all). Send less.")
        rows = [row(" ".join(text.split()[:LIMIT])) for text in given]
        data = [
            {"index": i, "embedding": pybase64.b64encode(r.tobytes()).decode()}
            for i, r in enumerate(rows)
        ]
        content = {"data": data[::-1], "usage": {"prompt_tokens": len(given)}}
        headers = {"x-hotbed-fingerprint": self.fingerprint} if self.fingerprint else {}
        return httpx.Response(200, json=content, headers=headers)

    def _refuse(self, index: int, said: str) -> httpx.Response:
        error = {"message": f"input[{index}] {said}", "param": f"input[{index}]"}
        return httpx.Response(400, json={"error": error | {"code": "invalid_input"}})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(module, "_INPUTS_A_REQUEST", 8)
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.0)
    return Server()


def job(server: Server, corpus: Path, out: Path, **options: Any) -> str:
    output = io.StringIO()
    backend = EndpointBackend(
        "http://there/v1/", {"model": "m"}, concurrency=3, transport=httpx.MockTransport(server)
    )
    settings = JobOptions(out=out, endpoint="http://there", **options)
    try:
        runner = InProcess(lambda _: (backend, 0))
        run_job([str(corpus)], settings, backend.recipe, runner, output=output)
    finally:
        backend.close()
    return output.getvalue()


def test_rows_keep_their_order_and_requests_are_bounded(server: Server, tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": text} for text in TEXTS])
    job(server, corpus, tmp_path / "out", rows_per_part=200)
    made = pq.read_table(tmp_path / "out")["embedding"].to_pylist()
    np.testing.assert_array_equal(made, [row(text) for text in TEXTS])
    assert 1 <= server.most <= 3


def test_failures_that_pass_are_tried_again(server: Server, tmp_path: Path) -> None:
    failures = iter(
        [
            None,
            httpx.Response(429, headers={"retry-after": "0"}),
            httpx.Response(503),
            "cut",
            None,
            "cut",
            httpx.Response(502),
        ]
    )

    def before(request: httpx.Request) -> httpx.Response | None:
        failure = next(failures, None)
        if isinstance(failure, str):
            raise httpx.ReadError(failure)
        return failure

    server.before = before
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": text} for text in TEXTS])
    job(server, corpus, tmp_path / "out")
    made = pq.read_table(tmp_path / "out")["embedding"].to_pylist()
    np.testing.assert_array_equal(made, [row(text) for text in TEXTS])


@pytest.mark.parametrize("form", ["seconds", "date", "date of a wrong clock"])
def test_retry_after_is_waited_for(
    form: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    date = email.utils.format_datetime(
        datetime.datetime.now(datetime.UTC)
        + datetime.timedelta(seconds=700 if form == "date" else 9e6),
        usegmt=True,
    )
    answers = iter(
        [None, httpx.Response(429, headers={"retry-after": "700" if form == "seconds" else date})]
    )
    server.before = lambda request: next(answers, None)
    waited: list[float] = []

    class Closed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0.0)
            return False

    monkeypatch.setattr(module, "_Closed", Closed)
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": text} for text in TEXTS[:20]])
    job(server, corpus, tmp_path / "out")
    assert len(waited) == 1
    # A date has whole seconds, and the job takes some until it looks at it.
    low, high = {"seconds": (700, 700), "date": (501, 700)}.get(form, (900, 900))
    assert low <= waited[0] <= high
    assert pq.read_table(tmp_path / "out").num_rows == 20


def test_a_server_that_stays_away_ends_the_job_and_it_goes_on_later(
    server: Server, tmp_path: Path
) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": text} for text in TEXTS])
    answered = 0

    def before(request: httpx.Request) -> httpx.Response | None:
        nonlocal answered
        answered += 1
        return httpx.Response(503) if answered > 30 else None

    server.before = before
    with pytest.raises(HotbedError, match="did not answer 8 times; last: status 503") as caught:
        job(server, corpus, tmp_path / "out", rows_per_part=100)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    server.before = lambda request: None
    job(server, corpus, tmp_path / "out", rows_per_part=100, resume=True)
    made = pq.read_table(tmp_path / "out")["embedding"].to_pylist()
    np.testing.assert_array_equal(made, [row(text) for text in TEXTS])


def test_rows_that_the_server_refuses_follow_the_policies(server: Server, tmp_path: Path) -> None:
    rows = [{"text": text} for text in TEXTS[:40]]
    rows[5]["text"], rows[6]["text"], rows[30]["text"] = "\x00", "fox " * 20, ""
    corpus = write_jsonl(tmp_path / "c.jsonl", rows)
    with pytest.raises(HotbedError, match=r"c\.jsonl, line (6|31): .*holds no text"):
        job(server, corpus, tmp_path / "out", too_long="truncate")
    said = job(server, corpus, tmp_path / "out", too_long="truncate", bad="skip", resume=True)
    assert "2 left out, no text in them" in said
    assert "1 truncated" in said
    table = pq.read_table(tmp_path / "out")
    kept = [r["text"] for i, r in enumerate(rows) if i not in (5, 30)]
    assert table["text"].to_pylist() == kept
    np.testing.assert_array_equal(table["embedding"][5].as_py(), row(" ".join(["fox"] * LIMIT)))


def test_a_text_that_the_model_fails_on_follows_the_policy(server: Server, tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": text} for text in [*TEXTS[:20], "nan"]])
    asked = 0

    def before(request: httpx.Request) -> httpx.Response | None:
        nonlocal asked
        given = orjson.loads(request.content)["input"]
        if "nan" not in given:
            return None
        asked += 1
        param = f"input[{given.index('nan')}]"
        error = {"message": f"{param}: a row that is not finite", "param": param}
        return httpx.Response(500, json={"error": error})

    server.before = before
    with pytest.raises(HotbedError, match=r"c\.jsonl, line 21: .*not finite"):
        job(server, corpus, tmp_path / "out")
    said = job(server, corpus, tmp_path / "out", bad="skip", resume=True)
    assert "1 left out, the model gave no finite row" in said
    assert asked == 2  # once each: it would fail again
    assert pq.read_table(tmp_path / "out")["text"].to_pylist() == TEXTS[:20]


def test_a_request_that_is_too_large_for_the_server_goes_in_halves(
    server: Server, tmp_path: Path
) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": text} for text in TEXTS[:50]])

    def before(request: httpx.Request) -> httpx.Response | None:
        if len(orjson.loads(request.content)["input"]) < 3:
            return None
        error = {"message": "the request has more tokens than the limit", "param": "input"}
        return httpx.Response(413, json={"error": error})

    server.before = before
    job(server, corpus, tmp_path / "out")
    made = pq.read_table(tmp_path / "out")["embedding"].to_pylist()
    np.testing.assert_array_equal(made, [row(text) for text in TEXTS[:50]])


def test_ctrl_c_ends_a_job_whose_server_is_silent(tmp_path: Path) -> None:
    """In a process of its own: the interpreter must not wait for the requests either."""
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": text} for text in TEXTS])
    first = b"HTTP/1.1 200 OK\r\nx-hotbed-fingerprint: f\r\ncontent-length: %d\r\n\r\n%b"
    rows = orjson.dumps(
        {"data": [{"index": 0, "embedding": "AACAPw=="}], "usage": {"prompt_tokens": 1}}
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-c", MAIN_WITH_CTRL_C, "embed", str(corpus), "--out"]
        command += [str(tmp_path / "out"), "--endpoint", url, "--concurrency", "1"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                connection, _ = listener.accept()
                with connection:
                    read_request(connection)
                    connection.sendall(first % (len(rows), rows))
                    read_request(connection)  # the first of the job's own; no answer
                    process.send_signal(signal.SIGINT)
                    _, said = process.communicate(timeout=60)
            finally:
                process.kill()
    assert said == "hotbed: stopped; --resume goes on after the last finished part\n"
    assert process.returncode == EXIT_INTERRUPTED


def test_a_request_that_closing_ends_is_not_called_a_server_that_fails(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that was stopped said that its server does not answer, and that it tried again."""
    transport = httpx.MockTransport(server)
    backend = EndpointBackend("http://there", {"model": "m"}, concurrency=1, transport=transport)
    asked = 0

    def before(request: httpx.Request) -> httpx.Response | None:
        nonlocal asked
        asked += 1
        backend.close()
        raise httpx.ReadError("[Errno 9] Bad file descriptor")

    server.before = before
    with pytest.raises(HotbedError) as caught:
        backend._ask(["a"], truncate=False)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert (asked, caplog.messages) == (1, [])


def test_a_url_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(HotbedError, match="--endpoint must be http"):
        EndpointBackend("localhost:8000", {"model": "m"}, concurrency=1)


def test_a_server_with_another_model_than_before_is_refused(server: Server, tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": text} for text in TEXTS])

    def before(request: httpx.Request) -> None:
        if server.most and request.content.count(b",") > 8:
            server.fingerprint = "fedcba9876543210"

    server.before = before
    with pytest.raises(HotbedError, match="its model has changed"):
        job(server, corpus, tmp_path / "out")


def test_what_is_no_hotbed_is_refused(server: Server, tmp_path: Path) -> None:
    server.fingerprint = ""
    with pytest.raises(HotbedError, match="sends no x-hotbed-fingerprint: it is no Hotbed"):
        job(server, tmp_path / "none", tmp_path / "out")
