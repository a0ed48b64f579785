"""Running the gateway: sockets, the HTTP server, an orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from types import FrameType

import uvicorn

from hotbed.core.notify import notify
from hotbed.ivy.app import Gateway
from hotbed.ivy.protocol import BoundedProtocol
from hotbed.ivy.settings import IvySettings

logger = logging.getLogger(__name__)


def bind(host: str, port: int, *, backlog: int) -> socket.socket:
    """A listening TCP socket that other processes of this user may share (SO_REUSEPORT).

    Each Ivy process binds its own: with one shared socket nearly all connections go to one or two
    processes (2026-11-30).
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named. Without it the second write of an
    # answer waits for the client's delayed ACK, 40 ms. uvloop sets it anyway.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(backlog)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


class Server(uvicorn.Server):
    """uvicorn's server with a stop in four steps.

    First signal: /ready says 503. After `drain_delay_s`: no new connections. Requests in flight
    have `drain_timeout_s`; then they get 503. A second signal skips the waiting.
    """

    def __init__(self, gateway: Gateway, settings: IvySettings) -> None:
        config = uvicorn.Config(
            gateway,
            http=BoundedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=settings.backlog,
            ssl_certfile=settings.tls_certfile,
            ssl_keyfile=settings.tls_keyfile,
        )
        # Declared as whole seconds, used as loop times: fractions work.
        config.timeout_keep_alive = settings.keep_alive_s  # type: ignore[assignment]
        config.timeout_graceful_shutdown = settings.drain_timeout_s  # type: ignore[assignment]
        super().__init__(config)
        self._gateway = gateway
        self._drain_delay_s = settings.drain_delay_s
        self._notifying: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal or `stop`."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept; once /ready says 200, whoever started this process is told."""
        await super().startup(sockets)
        if self.started:
            self._notifying = asyncio.create_task(self._notify_when_ready())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, finish what is in flight."""
        if self._notifying is not None:
            self._notifying.cancel()
        await super().shutdown(sockets)

    async def _notify_when_ready(self) -> None:
        await self._gateway.models.wait_until_ready()
        for service in self._gateway.models.services:
            pool = service.pool
            logger.info(
                "ready: %d of %d replicas of %s are up",
                pool.num_up, len(pool.replicas), service.name,
            )  # fmt: skip
        notify()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by the server for SIGINT and SIGTERM."""
        assert self._loop is not None, "signals are handled while serving only"
        self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Begin the stop; a second call skips the waiting."""
        if self._gateway.status.draining:
            logger.warning("asked to stop again: not waiting for requests in flight")
            self.should_exit = self.force_exit = True
            return
        logger.info("asked to stop: draining")
        self._gateway.status.draining = True
        asyncio.get_running_loop().call_later(self._drain_delay_s, self._stop_accepting)

    def _stop_accepting(self) -> None:
        self.should_exit = True


async def serve(gateway: Gateway, settings: IvySettings) -> None:
    """Serve on the shared port and, if set, on the process's own one, until told to stop.

    Raises:
        OSError: an address cannot be bound.
    """
    ports = [settings.port] if settings.own_port is None else [settings.port, settings.own_port]
    with contextlib.ExitStack() as stack:
        listeners = [
            stack.enter_context(bind(settings.host, port, backlog=settings.backlog))
            for port in ports
        ]
        for listener in listeners:
            host, port = listener.getsockname()[:2]
            scheme = "http" if settings.tls_certfile is None else "https"
            shown = f"[{host}]" if ":" in host else host
            logger.info("listening on %s://%s:%s", scheme, shown, port)
        await Server(gateway, settings).serve(sockets=listeners)
