"""Symptoms guarded: work of clients that vanished without a word, connections that never move on,
a server open to anybody, a documented example that does not run."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.exit_codes import EXIT_CONFIGURATION
from hotbed.tulip.loop import StepLoop
from hotbed.tulip.server import serve
from hotbed.tulip.settings import TulipSettings
from hotbed.tulip.testing import FakeEngine, expected_rows
from hotbed.wire import tulip_pb2_grpc as pb_grpc
from hotbed.wire.client import TulipClient
from hotbed.wire.limits import channel_options
from hotbed.wire.tls import ClientTls
from tests.support.certificates import make_certificates, needs_openssl
from tests.tulip.conftest import WAIT_S, ClientStream, StartTulip
from tests.tulip.scraping import free_port, items, scrape

DOCS = Path(__file__).parents[2] / "docs"


@contextlib.asynccontextmanager
async def on_tcp(engine: FakeEngine, **settings: Any) -> AsyncIterator[str]:
    """A server on a TCP port; its address."""
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        serve(
            TulipSettings(listen="127.0.0.1:0", **settings),
            lambda _: engine,
            stop=stop,
            on_ready=address.set_result,
        )
    )
    await asyncio.wait({serving, address}, return_when=asyncio.FIRST_COMPLETED)
    assert address.done(), "the server did not start"
    yield address.result()
    engine.release()
    stop.set()
    assert (await serving).code == 0


class BlackHole:
    """Passes TCP on until `swallow`: then everything vanishes and nothing is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_open = True
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def swallow(self) -> None:
        self._is_open = False

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._tasks += [
            asyncio.ensure_future(self._pump(reader, far_writer)),
            asyncio.ensure_future(self._pump(far_reader, writer)),
        ]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                if self._is_open:
                    writer.write(data)
        finally:
            writer.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_client_that_vanished_without_a_word_leaves_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loops: list[StepLoop] = []
    made = StepLoop.__init__

    def note(self: StepLoop, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        loops.append(self)

    monkeypatch.setattr(StepLoop, "__init__", note)
    engine = FakeEngine()
    metrics_port = free_port()
    async with on_tcp(
        engine, keepalive_time_s=0.2, keepalive_timeout_s=0.3, metrics_port=metrics_port
    ) as address:
        hole = BlackHole(int(address.rpartition(":")[2]))
        port = await hole.start()
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=channel_options()
        ) as channel:
            stream = ClientStream(pb_grpc.TulipStub(channel).Stream(timeout=60))
            await stream.send({0: [[1]]})
            stream.assert_rows((await stream.receive(1))[0])
            engine.hold()
            await stream.send({1: [[2]], 2: [[3]]})
            await until(lambda: loops[0].num_open_items == 2)
            hole.swallow()
            # No FIN, no RST: only the unanswered ping tells.
            await until(lambda: loops[0].num_open_items == 0)
            assert (await scrape(metrics_port))[items("cancelled")] == 2
            stream.call.cancel()
        await hole.close()


async def test_connections_of_a_set_age_are_made_anew_and_no_call_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peers: set[object] = set()
    submit = StepLoop.submit

    def note(self: StepLoop, *args: Any, **kwargs: Any) -> Any:
        peers.add(kwargs.get("client"))
        return submit(self, *args, **kwargs)

    monkeypatch.setattr(StepLoop, "submit", note)
    async with (
        on_tcp(FakeEngine(), max_connection_age_s=0.3) as address,
        TulipClient(address) as client,
    ):
        peers.clear()
        for number in range(10_000):
            embedding = await client.embed([[number]], timeout_s=WAIT_S)
            np.testing.assert_array_equal(embedding.rows, expected_rows([[number]]))
            if len(peers) >= 3:
                return
            await asyncio.sleep(0.01)
    raise AssertionError(f"always the same connection: {peers}")


async def test_the_documented_program_runs_without_hotbeds_code(start_tulip: StartTulip) -> None:
    page = (DOCS / "tulip.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "hotbed" not in program.replace("hotbed.tulip.v1.Tulip", "")
    tulip = await start_tulip()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, tulip.address,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, error = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, error.decode()
    first, *lines = out.decode().splitlines()
    assert first == "fake 32 512"
    expected = expected_rows([[101, 7592, 102], [101, 102]])[:, :4]
    got = [[float(x) for x in line.strip("()").split(",")] for line in lines]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@needs_openssl
async def test_with_mutual_tls_only_clients_of_the_authority_are_served(tmp_path: Path) -> None:
    make_certificates(tmp_path)

    def as_client(name: str | None) -> ClientTls:
        cert, key = (tmp_path / f"{name}.pem", tmp_path / f"{name}.key") if name else (None, None)
        return ClientTls(ca=tmp_path / "ca.pem", cert=cert, key=key)

    settings = {
        "tls_cert": tmp_path / "server.pem",
        "tls_key": tmp_path / "server.key",
        "tls_client_ca": tmp_path / "ca.pem",
    }
    async with on_tcp(FakeEngine(), **settings) as address:
        async with TulipClient(address, tls=as_client("client")) as client:
            embedding = await client.embed([[1, 2]], timeout_s=WAIT_S)
            np.testing.assert_array_equal(embedding.rows, expected_rows([[1, 2]]))
        for tls in (as_client("stranger"), as_client(None), None):
            async with TulipClient(address, tls=tls) as client:
                with pytest.raises(HotbedError) as caught:
                    await client.embed([[1]], timeout_s=WAIT_S)
                assert caught.value.code is ErrorCode.UNAVAILABLE


async def test_a_certificate_that_is_not_there_is_a_configuration_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ending = await serve(
        TulipSettings(
            listen="127.0.0.1:0", tls_cert=tmp_path / "none.pem", tls_key=tmp_path / "none.key"
        ),
        lambda _: FakeEngine(),
        stop=asyncio.Event(),
        on_ready=lambda _: None,
    )
    assert ending.code == EXIT_CONFIGURATION
    assert "none" in caplog.text


@needs_openssl
@pytest.mark.parametrize(
    ("cert", "key", "client_ca", "said"),
    [
        ("server.pem", "client.key", None, r"server\.pem and .*client\.key: .*MISMATCH"),
        ("server.key", "server.pem", None, r"server\.key and .*server\.pem: "),
        ("server.pem", "server.key", "empty", "empty: "),
        ("server.pem", "server.key", "none", "No such file.*none"),
    ],
)
async def test_files_of_tls_that_do_not_fit_are_named_at_the_start(
    cert: str,
    key: str,
    client_ca: str | None,
    said: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """gRPC says "failed to bind", or serves nobody."""
    make_certificates(tmp_path)
    (tmp_path / "empty").touch()
    settings = TulipSettings(
        listen="127.0.0.1:0",
        tls_cert=tmp_path / cert,
        tls_key=tmp_path / key,
        tls_client_ca=None if client_ca is None else tmp_path / client_ca,
    )
    ending = await serve(
        settings, lambda _: FakeEngine(), stop=asyncio.Event(), on_ready=lambda _: None
    )
    assert ending.code == EXIT_CONFIGURATION
    assert re.search(f"tls: .*{said}", caplog.text)
    tls = ClientTls(ca=tmp_path / (client_ca or "ca.pem"), cert=tmp_path / cert, key=tmp_path / key)
    with pytest.raises(OSError, match=said):
        TulipClient("127.0.0.1:1", tls=tls)
