"""The life of one Tulip: bind, load, first step, serve, drain, stop. Signals and logs are not here.

The port is bound before the model is loaded, so that an address in use is found at once and health
checks get an answer (NOT_SERVING) from the start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import grpc

from hotbed.core.errors import HotbedError
from hotbed.core.exit_codes import EXIT_CONFIGURATION, EXIT_FAILURE, exit_code
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import Engine
from hotbed.tulip.address import remove_stale_socket, unix_path
from hotbed.tulip.device import DeviceThread
from hotbed.tulip.health import Health
from hotbed.tulip.local import LocalServer
from hotbed.tulip.loop import StepLoop
from hotbed.tulip.metrics import Metrics
from hotbed.tulip.recording import Recording
from hotbed.tulip.register import register
from hotbed.tulip.service import TulipService
from hotbed.tulip.settings import TulipSettings
from hotbed.tulip.tls import server_credentials
from hotbed.tulip.tracing import Tracing
from hotbed.tulip.work import Answer
from hotbed.wire.limits import FRAMED_SUFFIX, server_options

_CLOSE_GRACE_S = 1.0
"""For answers that are on their way to clients when the server stops."""
_LAST_CALLS_PAUSE_S = 0.02
_LAST_CALLS_LIMIT_S = 1.0
_DEVICE_CLOSE_S = 5.0
_DEAD_DEVICE_CLOSE_S = 1.0

log = logging.getLogger(__name__)

EngineLoader = Callable[[TulipSettings], Engine]


class Ending(NamedTuple):
    """How a server ended."""

    code: int
    """The process's exit code: 0 after `stop`; EXIT_FAILURE if the engine died or the start failed
    in a way that may pass; EXIT_CONFIGURATION if settings or model can never work."""
    is_device_busy: bool
    """A thread is still inside the engine: Python would wait for it when it exits."""


class _StartError(Exception):
    """The server cannot start; the message is for the person who started it."""

    def __init__(self, message: str, code: int = EXIT_FAILURE) -> None:
        super().__init__(message)
        self.code = code


async def serve(
    settings: TulipSettings,
    load_engine: EngineLoader,
    *,
    stop: asyncio.Event,
    on_ready: Callable[[str], None],
) -> Ending:
    """Serve until `stop` is set or the engine dies.

    Args:
        settings: of the process.
        load_engine: loads and warms the engine; called on the device thread.
        stop: set it to drain and return.
        on_ready: called with the address once requests are served.
    """
    async with AsyncExitStack() as stack:
        server = _Server(settings, stack)
        try:
            code = await server.run(load_engine, stop, on_ready)
        except _StartError as error:
            log.error("%s", error)
            code = error.code
    return Ending(code, server.is_device_busy)


class _Server:
    def __init__(self, settings: TulipSettings, stack: AsyncExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self._service = TulipService(local_stream=settings.local_stream)
        self._health = Health()
        self._metrics = Metrics()
        self._metrics.watch_unsent(lambda: self._service.num_unsent_bytes)
        self._tracing: Tracing | None = None
        self.is_device_busy = False

    async def run(
        self, load_engine: EngineLoader, stop: asyncio.Event, on_ready: Callable[[str], None]
    ) -> int:
        self._serve_metrics()
        self._start_tracing()
        server, address = await self._bind()
        self._stack.push_async_callback(server.stop, _CLOSE_GRACE_S)
        device = DeviceThread(lambda: load_engine(self._settings))
        engine = await self._load(device, stop)
        if engine is None:
            self.is_device_busy = True
            return 0
        steps = self._start_loop(engine, device)
        self._stack.callback(steps.close)
        self._stack.push_async_callback(self._close_device, device, steps)
        if not await _first_step(steps):
            return EXIT_FAILURE
        self._record(steps)
        await self._listen_locally()
        self._service.attach(steps)
        await self._health.serving()
        on_ready(address)
        await _first_of(stop, steps.died)
        await self._health.not_serving()
        await self._drain(steps)
        self._service.end_streams()
        await self._answer_the_last_calls()
        return EXIT_FAILURE if steps.died.is_set() else 0

    def _serve_metrics(self) -> None:
        host, port = self._settings.metrics_host, self._settings.metrics_port
        if port is None:
            return
        try:
            page, thread = self._metrics.serve(host, port)
        except OSError as error:
            raise _StartError(f"metrics_port: cannot listen on {host}:{port}: {error}") from error
        self._stack.callback(thread.join)
        self._stack.callback(page.server_close)
        self._stack.callback(page.shutdown)
        log.info("metrics on http://%s:%d/metrics", host, page.server_port)

    def _start_tracing(self) -> None:
        if not self._settings.traces:
            return
        try:
            self._tracing = tracing = Tracing.start()
        except ModuleNotFoundError as error:
            raise _StartError(
                f"traces need the extra otel (pip install 'hotbed[otel]'): {error}",
                EXIT_CONFIGURATION,
            ) from error
        self._stack.push_async_callback(asyncio.to_thread, tracing.close)

    def _record(self, steps: StepLoop) -> None:
        if self._settings.record_traffic is None:
            return
        try:
            recording = Recording(self._settings.record_traffic)
        except OSError as error:
            raise _StartError(f"record_traffic: {error}", EXIT_CONFIGURATION) from error
        self._stack.callback(recording.close)
        steps.on_arrival = recording.add
        log.info("recording traffic to %s", recording.path)

    async def _bind(self) -> tuple[grpc.aio.Server, str]:
        """The server, started, and the address it listens on."""
        listen = self._settings.listen
        settings = self._settings
        server = grpc.aio.server(
            options=server_options(
                keepalive_time_s=settings.keepalive_time_s,
                keepalive_timeout_s=settings.keepalive_timeout_s,
                max_connection_age_s=settings.max_connection_age_s,
            )
        )
        register(self._service, server)
        await self._health.register(server)
        try:
            remove_stale_socket(listen)
            port = self._add_port(server)
        except (OSError, RuntimeError) as error:
            raise _StartError(f"listen: cannot listen on {listen}: {error}") from error
        await server.start()
        if unix_path(listen) is not None:
            return server, listen
        return server, f"{listen.rpartition(':')[0]}:{port}"

    async def _listen_locally(self) -> None:
        path = unix_path(self._settings.listen)
        if not self._settings.local_stream or path is None:
            return
        local = LocalServer(Path(f"{path}{FRAMED_SUFFIX}"), self._service.serve_stream)
        try:
            await local.start()
        except OSError as error:
            raise _StartError(f"local_stream: cannot listen: {error}") from error
        self._stack.push_async_callback(local.close, _CLOSE_GRACE_S)

    def _add_port(self, server: grpc.aio.Server) -> int:
        settings = self._settings
        if settings.tls_cert is None or settings.tls_key is None:
            return server.add_insecure_port(settings.listen)
        try:
            credentials = server_credentials(
                settings.tls_cert, settings.tls_key, client_ca=settings.tls_client_ca
            )
        except OSError as error:
            raise _StartError(f"tls: {error}", EXIT_CONFIGURATION) from error
        return server.add_secure_port(settings.listen, credentials)

    async def _load(self, device: DeviceThread, stop: asyncio.Event) -> Engine | None:
        """The engine, or None if the process was stopped meanwhile."""
        loading = asyncio.ensure_future(device.loaded())
        await _first_of(stop, loading)
        if not loading.done():
            loading.cancel()
            return None
        try:
            return loading.result()
        except HotbedError as error:
            raise _StartError(
                f"cannot load the model: {error.message}", exit_code(error)
            ) from error
        except Exception as error:
            log.exception("cannot load the model")
            raise _StartError(f"cannot load the model: {error}") from error

    def _start_loop(self, engine: Engine, device: DeviceThread) -> StepLoop:
        settings = self._settings
        try:
            limits = settings.limits(engine.info, engine.default_step_tokens)
        except ValueError as error:
            raise _StartError(
                f"the settings do not suit the model: {error}", EXIT_CONFIGURATION
            ) from error
        info = engine.info
        log.info(
            "%s (%s): %d dimensions, %d tokens, %s on %s, fingerprint %s; steps of %d tokens",
            info.name,
            info.architecture,
            info.dimensions,
            info.max_tokens,
            info.dtype,
            info.device,
            info.fingerprint,
            limits.max_step_tokens,
        )
        return StepLoop(
            engine,
            device,
            limits,
            self._metrics,
            max_steps_in_flight=settings.max_steps_in_flight,
            min_ahead_tokens=settings.min_ahead_tokens,
            step_timeout_s=settings.step_timeout_s,
            tracing=self._tracing,
        )

    async def _drain(self, steps: StepLoop) -> None:
        """Take nothing new, let what is accepted finish, then answer what is left."""
        if steps.died.is_set():
            return
        steps.refuse_all("draining")
        log.info("draining %d items", steps.num_open_items)
        await _first_of(steps.idle, steps.died, timeout_s=self._settings.drain_timeout_s)
        if steps.num_open_items:
            log.warning("%d items are left after the drain's limit", steps.num_open_items)
            steps.abandon("stopping")

    async def _answer_the_last_calls(self) -> None:
        """Refuse the calls that are on their way, until none comes for a moment.

        gRPC's own stop answers those CANCELLED, as if the client had taken them back.
        """
        give_up = time.monotonic() + _LAST_CALLS_LIMIT_S
        num_calls = -1
        while num_calls < self._service.num_calls and time.monotonic() < give_up:
            num_calls = self._service.num_calls
            await asyncio.sleep(_LAST_CALLS_PAUSE_S)

    async def _close_device(self, device: DeviceThread, steps: StepLoop) -> None:
        timeout_s = _DEAD_DEVICE_CLOSE_S if steps.died.is_set() else _DEVICE_CLOSE_S
        self.is_device_busy = not await device.close(timeout_s)
        if self.is_device_busy:
            log.warning("the device did not stop within %.0f s", timeout_s)


async def _first_step(steps: StepLoop) -> bool:
    """Whether one real step, of one token, gives a finite row."""
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    info = steps.info
    spec = OutputSpec(info.dimensions, normalize=info.normalize)
    if info.first_output != "dense":
        spec = OutputSpec(kind=info.first_output)
    steps.submit(
        RaggedBatch.from_sequences([[0]]),
        spec,
        on_answer=answered.set_result,
    )
    result = (await answered).result
    if isinstance(result, HotbedError):
        log.error("the first step failed: %s", result.message)
        return False
    return True


async def _first_of(
    *what: asyncio.Event | asyncio.Future[Engine], timeout_s: float | None = None
) -> None:
    """Wait until one event is set or future is done, or the time is up."""
    waits = [asyncio.ensure_future(w.wait() if isinstance(w, asyncio.Event) else w) for w in what]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait, source in zip(waits, what, strict=True):
            if wait is not source:
                wait.cancel()
