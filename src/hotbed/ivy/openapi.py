"""The OpenAPI 3.1 document, made from the same structs that read the requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hotbed import __version__
from hotbed.ivy.dialects.tei import TeiInfo
from hotbed.ivy.errors import ErrorAnswer
from hotbed.ivy.models import Model, ModelList
from hotbed.ivy.routes import Route
from hotbed.ivy.status import Health, Readiness, StatusAnswer, Version

_REF = "#/components/schemas/{name}"
_TYPES = (ModelList, Model, Health, Readiness, TeiInfo, StatusAnswer, Version, ErrorAnswer)

_ANSWER_HEADERS = {
    "x-request-id": "The client's own id if it sent a plain one, else a new one.",
    "x-hotbed-fingerprint": "Short hash over model, tokenizer, prompt, dimensions and type: rows "
    "of two fingerprints must not be compared with each other.",
    "server-timing": "Milliseconds: tokenize, queue (the longest of the request's chunks), device "
    "(all chunks together), total.",
}
_WORK_ERRORS = {
    400: "A field is missing, unknown, or has a wrong type or value.",
    401: "No good API key, where one is needed.",
    404: "No model of this name.",
    408: "The body did not arrive in time.",
    413: "Body or inputs over a limit.",
    415: "Not JSON, or a content encoding other than gzip and deflate.",
    429: "Too busy now; see Retry-After.",
    500: "A fault of the server.",
    503: "No replica is available; see Retry-After.",
    504: "The request's time ran out.",
}


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """The document as plain JSON values.

    Args:
        routes: those that take work.
    """
    types = [*_TYPES, *(t for route in routes for t in (route.body, route.reply, route.error))]
    inline, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    of_type = dict(zip(map(repr, types), inline, strict=True))
    work: dict[str, Any] = {}
    for route in routes:
        work[route.path] = {"post": _work(route, of_type)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hotbed",
            "version": __version__,
            "description": "Text embeddings and scores in the dialects of OpenAI, Perplexity, "
            "Cohere, Jina, TEI and vLLM. Paths also work with a trailing slash.",
        },
        "paths": {
            **work,
            "/v1/models": {"get": _read("listModels", "The names of the models.", "ModelList")},
            "/v1/models/{id}": {"get": _read_model()},
            "/health": {"get": _read("health", "Whether the process lives.", "Health")},
            "/ready": {
                "get": _read("ready", "Whether enough replicas are up.", "Readiness")
                | {"responses": {"200": _json("Ready.", "Readiness"),
                                 "503": _json("Not ready, or draining.", "Readiness")}}
            },
            "/version": {"get": _read("version", "The version of Hotbed.", "Version")},
            "/status": {"get": _read("status", "Models and replicas now.", "StatusAnswer")},
            "/info": {"get": _read("teiInfo", "Facts of the first model (TEI).", "TeiInfo")},
            "/metrics": {"get": _metrics()},
        },
        "components": {"schemas": schemas},
    }  # fmt: skip


def _work(route: Route, schemas: Mapping[str, Any]) -> dict[str, Any]:
    def content(of: Any) -> dict[str, Any]:
        return {"application/json": {"schema": schemas[repr(of)]}}

    answer = {
        "description": "The answer.",
        "content": content(route.reply),
        "headers": {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in _ANSWER_HEADERS.items()
        },
    }
    timeout = {
        "name": "x-request-timeout-ms",
        "in": "header",
        "required": False,
        "description": "Time for this request; past it 504.",
        "schema": {"type": "integer", "minimum": 1},
    }
    errors = {
        str(status): {"description": text, "content": content(route.error)}
        for status, text in _WORK_ERRORS.items()
    }
    return {
        "operationId": route.operation,
        "summary": route.summary,
        "parameters": [timeout],
        "requestBody": {"required": True, "content": content(route.body)},
        "responses": {"200": answer} | errors,
    }


def _read(operation: str, summary: str, schema: str) -> dict[str, Any]:
    return {
        "operationId": operation,
        "summary": summary,
        "responses": {"200": _json(summary, schema)},
    }


def _read_model() -> dict[str, Any]:
    operation = _read("getModel", "One of the names.", "Model")
    operation["parameters"] = [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
    operation["responses"]["404"] = _json("No model of this name.", "ErrorAnswer")
    return operation


def _metrics() -> dict[str, Any]:
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "operationId": "metrics",
        "summary": "Metrics of this process in Prometheus' text format.",
        "responses": {"200": {"description": "The metrics.", "content": content}},
    }


def _json(description: str, schema: str) -> dict[str, Any]:
    return {"description": description, "content": _content(schema)}


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=schema)}}}
