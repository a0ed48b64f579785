"""The ASGI application: routes, request ids, errors to answers, start and stop."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import orjson

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.dialects.all import dialect_routes
from hotbed.ivy.dialects.tei import TeiRoutes
from hotbed.ivy.docs_page import docs_page
from hotbed.ivy.errors import HttpError, error_reply
from hotbed.ivy.histograms import Series
from hotbed.ivy.http import CLOSE, Receive, Reply, Scope, Send, sane_request_id, send_reply
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.models import ModelRoutes
from hotbed.ivy.openapi import openapi_document
from hotbed.ivy.pool import ReplicaPool
from hotbed.ivy.registry import Registry
from hotbed.ivy.routes import Route
from hotbed.ivy.served_model import ServedModel
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.status import StatusRoutes
from hotbed.ivy.work import WorkDoor

logger = logging.getLogger(__name__)

Handler = Callable[[dict[bytes, bytes], Receive], Awaitable[Reply]]

_MODEL_PATHS = ("/v1/models/", "/models/")
_MODEL_ROUTE = "/v1/models/{id}"


@dataclass(frozen=True, slots=True)
class Entry:
    """What one path has.

    Attributes:
        name: the route's, for metrics.
        handlers: by method.
        error_reply: the dialect's form of an error.
        seconds: where the time of an answered request is noted; None if it makes no work.
    """

    name: str
    handlers: dict[str, Handler]
    error_reply: Callable[[HotbedError | HttpError], Reply] = error_reply
    seconds: Series | None = None


class Gateway:
    """One Ivy process's ASGI application. Holds all its state; build one per event loop.

    Args:
        settings: of the process.
        models: what is served, at least one; the first is meant where a request names none.

    Raises:
        ValueError: two models share a name.
    """

    def __init__(self, settings: IvySettings, *models: ServedModel) -> None:
        self._metrics = metrics = Metrics()
        self.models = Registry(models, settings, metrics)
        self.status = StatusRoutes(self.models, metrics)
        self.door = WorkDoor(settings, metrics)
        self._model_routes = ModelRoutes(self.models)
        self._tei_info = TeiRoutes(self.models, settings, metrics).info
        routes = dialect_routes(self.models, settings, metrics)
        self._routes = self._route_table(routes)
        metrics.know_routes([_MODEL_ROUTE, *(entry.name for entry in self._routes.values())])

    @property
    def pool(self) -> ReplicaPool:
        """Of the first model."""
        return self.models.services[0].pool

    def _route_table(self, routes: list[Route]) -> dict[str, Entry]:
        """Path -> what is there."""
        document = Reply(200, orjson.dumps(openapi_document(routes)))
        page = docs_page()
        to_docs = Reply(307, b"", ((b"location", b"/docs"),))
        table: dict[str, Entry] = {
            "/v1/models": Entry("/v1/models", _get(self._model_routes.list)),
            "/health": Entry("/health", _get(self.status.health)),
            "/ready": Entry("/ready", _get(self.status.ready)),
            "/metrics": Entry("/metrics", _get(self.status.metrics)),
            "/info": Entry("/info", _get(self._tei_info)),
            "/openapi.json": Entry("/openapi.json", _get(lambda: document)),
            "/docs": Entry("/docs", _get(lambda: page)),
            "/": Entry("/", _get(lambda: to_docs)),
        }
        # With and without /v1: both are common as a client's base URL.
        table["/models"] = table["/v1/models"]
        for path in ("/health", "/ready", "/metrics"):
            table["/v1" + path] = table[path]
        for route in routes:
            entry = Entry(
                route.path,
                {"POST": functools.partial(self.door.run, answer=route.answer)},
                route.error_reply,
                self._metrics.request_seconds.series(route.path),
            )
            for path in (route.path, *route.aliases):
                there = table.get(path)
                if there is None:
                    table[path] = entry
                else:  # a page to read at the same path
                    table[path] = replace(entry, handlers={**there.handlers, **entry.handlers})
        return table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"ASGI scope type {scope['type']!r} is not supported")
        headers = dict(scope["headers"])
        request_id = sane_request_id(headers.get(b"x-request-id")) or os.urandom(16).hex().encode()
        entry = _NOWHERE
        start = time.perf_counter()
        try:
            entry = self._find(scope["path"])
            handler = entry.handlers.get(scope["method"])
            if handler is None:
                reply = _other_method(scope["method"], entry.handlers)
            else:
                reply = await handler(headers, receive)
                if entry.seconds is not None:
                    entry.seconds.observe(time.perf_counter() - start)
        except (HotbedError, HttpError) as error:
            if isinstance(error, HotbedError) and error.code is ErrorCode.INTERNAL:
                logger.error("request %s: %s", request_id.decode(), error.message)
            reply = entry.error_reply(error)
        except asyncio.CancelledError:
            # Only the server cancels, when the time to drain is over. The request was accepted,
            # so it gets its answer; the task ends right after it.
            reply = entry.error_reply(_STOPPING)
        except Exception:
            logger.exception("request %s failed: this is a bug", request_id.decode())
            reply = entry.error_reply(
                HotbedError(ErrorCode.INTERNAL, "A fault in the gateway; its log has the details.")
            )
        if self.status.draining:
            reply = _with_close(reply)
        self._metrics.count_answer(entry.name, reply.status)
        await send_reply(send, reply, ((b"x-request-id", request_id),))

    def _find(self, path: str) -> Entry:
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
                return Entry(_MODEL_ROUTE, _get(functools.partial(self._model_routes.get, name)))
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


_NOWHERE = Entry("other", {})
_STOPPING = HotbedError(
    ErrorCode.UNAVAILABLE, "The gateway is stopping. Try again.", retry_after_s=1.0
)


def _get(answer: Callable[[], Reply]) -> dict[str, Handler]:
    """Handlers of a route that only reads; for HEAD the server leaves the body out."""

    async def handler(headers: dict[bytes, bytes], receive: Receive) -> Reply:
        return answer()

    return {"GET": handler, "HEAD": handler}


def _other_method(method: str, handlers: dict[str, Handler]) -> Reply:
    allow = (b"allow", ", ".join((*handlers, "OPTIONS")).encode())
    if method == "OPTIONS":
        return Reply(204, b"", (allow,))
    return error_reply(
        HttpError(
            405,
            "method_not_allowed",
            f"This path takes {' or '.join(handlers)}.",
            (allow,),
        )
    )


def _with_close(reply: Reply) -> Reply:
    return Reply(reply.status, reply.body, (*reply.headers, CLOSE))
