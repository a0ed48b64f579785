"""The ASGI application: routes, request ids, errors to answers, start and stop."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Awaitable, Callable

import orjson

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.docs_page import docs_page
from hotbed.ivy.embed import EmbedPipeline
from hotbed.ivy.embeddings import EmbeddingsRoute
from hotbed.ivy.errors import HttpError, error_reply
from hotbed.ivy.http import (
    CLOSE,
    Receive,
    Reply,
    Scope,
    Send,
    sane_request_id,
    send_reply,
)
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.models import ModelRoutes
from hotbed.ivy.openapi import openapi_document
from hotbed.ivy.pool import ReplicaPool
from hotbed.ivy.score import ScorePipeline
from hotbed.ivy.score_routes import ScoreRoutes
from hotbed.ivy.served_model import ServedModel
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.status import StatusRoutes
from hotbed.ivy.tokenize import TokenizeStage
from hotbed.ivy.tokenize_pairs import PairTokenizeStage

logger = logging.getLogger(__name__)

Handler = Callable[[dict[bytes, bytes], Receive], Awaitable[Reply]]

_MODEL_PATHS = ("/v1/models/", "/models/")
_MODEL_ROUTE = "/v1/models/{id}"


class Gateway:
    """One Ivy process's ASGI application. Holds all its state; build one per event loop."""

    def __init__(self, settings: IvySettings, model: ServedModel) -> None:
        routes = ("/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/classify", "/v1/models",
                  _MODEL_ROUTE, "/health", "/ready", "/metrics", "/openapi.json", "/docs",
                  "/")  # fmt: skip
        metrics = Metrics(routes=routes, replicas=settings.replicas)
        self.pool = ReplicaPool(settings, model.expected, metrics)
        self.status = StatusRoutes(
            self.pool, metrics, min_ready_replicas=settings.num_ready_replicas
        )
        self._metrics = metrics
        self._tokenize = TokenizeStage(model.tokenizer, num_threads=settings.tokenizer_threads)
        pipeline = EmbedPipeline(
            tokenize=self._tokenize,
            tokenizer_fingerprint=model.tokenizer.fingerprint,
            prompts=model.prompts,
            pool=self.pool,
            settings=settings,
            metrics=metrics,
        )
        self._embeddings = EmbeddingsRoute(
            pipeline, names=model.names, settings=settings, metrics=metrics
        )
        pairs = model.pairs
        self._scores = ScoreRoutes(
            ScorePipeline(
                tokenize=None
                if pairs is None
                else PairTokenizeStage(
                    pairs, self._tokenize, max_request_tokens=settings.max_request_tokens
                ),
                pool=self.pool,
                settings=settings,
                metrics=metrics,
            ),
            run=self._embeddings.run,
            names=model.names,
            settings=settings,
            metrics=metrics,
        )
        self._models = ModelRoutes(model, self.pool)
        self._routes = self._route_table()

    def _route_table(self) -> dict[str, tuple[str, dict[str, Handler]]]:
        """Path -> (route's name, method -> handler)."""
        document = Reply(200, orjson.dumps(openapi_document()))
        page = docs_page()
        to_docs = Reply(307, b"", ((b"location", b"/docs"),))
        table: dict[str, tuple[str, dict[str, Handler]]] = {
            "/v1/embeddings": ("/v1/embeddings", {"POST": self._embeddings.post}),
            "/v1/rerank": ("/v1/rerank", {"POST": self._scores.rerank}),
            "/v1/score": ("/v1/score", {"POST": self._scores.score}),
            "/v1/classify": ("/v1/classify", {"POST": self._scores.classify}),
            "/v1/models": ("/v1/models", _get(self._models.list)),
            "/health": ("/health", _get(self.status.health)),
            "/ready": ("/ready", _get(self.status.ready)),
            "/metrics": ("/metrics", _get(self.status.metrics)),
            "/openapi.json": ("/openapi.json", _get(lambda: document)),
            "/docs": ("/docs", _get(lambda: page)),
            "/": ("/", _get(lambda: to_docs)),
        }
        # With and without /v1: both are common as a client's base URL.
        for path in ("/embeddings", "/models", "/rerank", "/score", "/classify"):
            table[path] = table["/v1" + path]
        table["/v2/rerank"] = table["/v1/rerank"]
        for path in ("/health", "/ready", "/metrics"):
            table["/v1" + path] = table[path]
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
        route = "other"
        try:
            route, handlers = self._find(scope["path"])
            handler = handlers.get(scope["method"])
            if handler is None:
                reply = _other_method(scope["method"], handlers)
            else:
                reply = await handler(headers, receive)
        except (HotbedError, HttpError) as error:
            if isinstance(error, HotbedError) and error.code is ErrorCode.INTERNAL:
                logger.error("request %s: %s", request_id.decode(), error.message)
            reply = error_reply(error)
        except asyncio.CancelledError:
            # Only the server cancels, when the time to drain is over. The request was accepted,
            # so it gets its answer; the task ends right after it.
            reply = error_reply(_STOPPING)
        except Exception:
            logger.exception("request %s failed: this is a bug", request_id.decode())
            reply = error_reply(
                HotbedError(ErrorCode.INTERNAL, "A fault in the gateway; its log has the details.")
            )
        if self.status.draining:
            reply = _with_close(reply)
        self._metrics.count_answer(route, reply.status)
        await send_reply(send, reply, ((b"x-request-id", request_id),))

    def _find(self, path: str) -> tuple[str, dict[str, Handler]]:
        found = self._routes.get(path)
        if found is not None:
            return found
        trimmed = path.rstrip("/")
        found = self._routes.get(trimmed)
        if found is not None:
            return found
        for prefix in _MODEL_PATHS:
            if trimmed.startswith(prefix):
                name = trimmed.removeprefix(prefix)
                return _MODEL_ROUTE, _get(functools.partial(self._models.get, name))
        raise HttpError(
            404,
            "not_found",
            "There is nothing at this path. Paths: " + ", ".join(sorted(self._routes)) + ".",
        )

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self.pool.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def close(self) -> None:
        """End streams and threads; requests still waiting get UNAVAILABLE."""
        await self.pool.close()
        self._tokenize.close()
        self._embeddings.close()


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
