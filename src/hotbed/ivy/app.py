"""The ASGI application: routes, request ids, errors to answers, start and stop."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import time
from dataclasses import replace

import orjson

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.cors import Cors
from hotbed.ivy.dialects.all import dialect_routes
from hotbed.ivy.dialects.tei import TeiRoutes
from hotbed.ivy.errors import HttpError
from hotbed.ivy.http import CLOSE, Receive, Reply, Scope, Send, sane_request_id, send_reply
from hotbed.ivy.keys import ApiKeys
from hotbed.ivy.logs import log_access
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.models import ModelRoutes
from hotbed.ivy.openapi import openapi_document
from hotbed.ivy.pages import docs_page, status_page
from hotbed.ivy.pool import ReplicaPool
from hotbed.ivy.registry import Registry
from hotbed.ivy.routes import Route
from hotbed.ivy.served_model import ServedModel
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.status import StatusRoutes
from hotbed.ivy.table import Entry, Methods, nothing, reading
from hotbed.ivy.tracing import Tracing
from hotbed.ivy.work import WorkDoor

logger = logging.getLogger(__name__)

_MODEL_PATHS = ("/v1/models/", "/models/")
_MODEL_ROUTE = "/v1/models/{id}"


class Gateway:
    """One Ivy process's ASGI application. Holds all its state; build one per event loop.

    Args:
        settings: of the process.
        models: what is served, at least one; the first is meant where a request names none.

    Raises:
        ValueError: two models share a name.
        HotbedError: INVALID_INPUT if the file of API keys cannot be used.
        ModuleNotFoundError: traces are asked for without the extra ``otel``.
    """

    def __init__(self, settings: IvySettings, *models: ServedModel) -> None:
        self._metrics = metrics = Metrics()
        self.models = Registry(models, settings, metrics)
        self.door = WorkDoor(settings, metrics)
        self.status = StatusRoutes(self.models, self.door, metrics)
        self._keys = (
            None if settings.api_keys_file is None else ApiKeys.read(settings.api_keys_file)
        )
        self._cors = Cors(settings.cors_origins) if settings.cors_origins else None
        self._is_access_logged = settings.access_log
        self.tracing = Tracing.start() if settings.traces else None
        self._model_routes = ModelRoutes(self.models)
        self._tei_info = TeiRoutes(self.models, settings, metrics).info
        self._routes = self._route_table(dialect_routes(self.models, settings, metrics))
        names = (entry.name for methods in self._routes.values() for entry in methods.values())
        metrics.know_routes([_MODEL_ROUTE, *names])

    @property
    def pool(self) -> ReplicaPool:
        """Of the first model."""
        return self.models.services[0].pool

    def _route_table(self, routes: list[Route]) -> dict[str, Methods]:
        """Path -> what is there."""
        document = Reply(200, orjson.dumps(openapi_document(routes)))
        docs, page = docs_page(), status_page()
        table: dict[str, Methods] = {
            "/v1/models": reading("/v1/models", self._model_routes.list),
            "/health": reading("/health", self.status.health, is_open=True),
            "/ready": reading("/ready", self.status.ready, is_open=True),
            "/metrics": reading("/metrics", self.status.metrics, is_open=True),
            "/version": reading("/version", self.status.version, is_open=True),
            "/info": reading("/info", self._tei_info),
            "/status": reading("/status", self.status.status),
            "/openapi.json": reading("/openapi.json", lambda: document, is_open=True),
            "/docs": reading("/docs", lambda: docs, is_open=True),
            "/": reading("/", lambda: page, is_open=True),
        }
        # With and without /v1: both are common as a client's base URL.
        table["/models"] = table["/v1/models"]
        for path in ("/health", "/ready", "/metrics"):
            table["/v1" + path] = table[path]
        # SageMaker's name for it.
        table["/ping"] = table["/health"]
        for route in routes:
            entry = Entry(
                route.path,
                functools.partial(self.door.run, answer=route.answer),
                route.error_reply,
                self._metrics.request_seconds.series(route.path),
            )
            for path in (route.path, *route.aliases):
                # At / there is a page to read, too.
                table[path] = {**table.get(path, {}), "POST": entry}
        return table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"ASGI scope type {scope['type']!r} is not supported")
        start = time.perf_counter()
        headers = dict(scope["headers"])
        request_id = sane_request_id(headers.get(b"x-request-id")) or os.urandom(16).hex().encode()
        if self.tracing is None or scope["method"] != "POST":  # of probes nobody wants traces
            await self._serve(scope, headers, receive, send, request_id=request_id, start=start)
            return
        with self.tracing.request(
            headers, method=scope["method"], request_id=request_id.decode(), start=start
        ) as trace:
            name, reply = await self._serve(
                scope, headers, receive, send, request_id=request_id, start=start
            )
            trace.answered(name, reply.status, reply.stages)

    async def _serve(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        send: Send,
        *,
        request_id: bytes,
        start: float,
    ) -> tuple[str, Reply]:
        """(the route's name, the answer), which was sent."""
        entry, reply = await self._answer(scope, headers, receive, request_id)
        if reply.status == 200 and entry.seconds is not None:
            entry.seconds.observe(time.perf_counter() - start)
        if self.status.draining:
            reply = replace(reply, headers=(*reply.headers, CLOSE))
        self._metrics.count_answer(entry.name, reply.status)
        more: list[tuple[bytes, bytes]] = [(b"x-request-id", request_id)]
        if self._cors is not None:
            more.extend(self._cors.headers(headers))
        await send_reply(send, reply, more)
        if self._is_access_logged:
            log_access(scope["method"], entry.name, reply.status, start, request_id.decode())
        return entry.name, reply

    async def _answer(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, request_id: bytes
    ) -> tuple[Entry, Reply]:
        """(what is at the path, the answer), whatever happens."""
        entry = _NOWHERE
        try:
            methods = self._find(scope["path"])
            found = methods.get(scope["method"])
            entry = found or next(iter(methods.values()))
            if self._keys is not None and not (entry.is_open or scope["method"] == "OPTIONS"):
                self._keys.check(headers)
            if found is None:
                return entry, self._other_method(scope["method"], headers, methods)
            return entry, await entry.handler(headers, receive)
        except (HotbedError, HttpError) as error:
            if isinstance(error, HotbedError) and error.code is ErrorCode.INTERNAL:
                logger.error("request %s: %s", request_id.decode(), error.message)
            return entry, entry.error_reply(error)
        except asyncio.CancelledError:
            # Only the server cancels, when the time to drain is over. The request was accepted,
            # so it gets its answer; the task ends right after it.
            return entry, entry.error_reply(_STOPPING)
        except Exception:
            logger.exception("request %s failed: this is a bug", request_id.decode())
            return entry, entry.error_reply(_BUG)

    def _other_method(self, method: str, headers: dict[bytes, bytes], handlers: Methods) -> Reply:
        allow = (b"allow", ", ".join((*handlers, "OPTIONS")).encode())
        if method == "OPTIONS":
            preflight = () if self._cors is None else self._cors.preflight(headers, handlers)
            return Reply(204, b"", (allow, *preflight))
        raise HttpError(
            405, "method_not_allowed", f"This path takes {' or '.join(handlers)}.", (allow,)
        )

    def _find(self, path: str) -> Methods:
        found = self._routes.get(path)
        if found is not None:
            return found
        trimmed = path.rstrip("/") or "/"
        found = self._routes.get(trimmed)
        if found is not None:
            return found
        for prefix in _MODEL_PATHS:
            if trimmed.startswith(prefix):
                name = trimmed.removeprefix(prefix)
                return reading(_MODEL_ROUTE, functools.partial(self._model_routes.get, name))
        raise HttpError(
            404,
            "not_found",
            "There is nothing at this path. Paths: " + ", ".join(sorted(self._routes)) + ".",
        )

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self.models.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def close(self) -> None:
        """End streams and threads; requests still waiting get UNAVAILABLE."""
        await self.models.close()
        self.door.close()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)


_NOWHERE = Entry("other", nothing)
_STOPPING = HotbedError(
    ErrorCode.UNAVAILABLE, "The gateway is stopping. Try again.", retry_after_s=1.0
)
_BUG = HotbedError(ErrorCode.INTERNAL, "A fault in the gateway; its log has the details.")
