"""The OpenAPI 3.1 document, made from the same structs that read the requests."""

from __future__ import annotations

from typing import Any

import msgspec

from hotbed import __version__
from hotbed.ivy.classify import ClassifyAnswer, ClassifyBody
from hotbed.ivy.errors import ErrorAnswer
from hotbed.ivy.models import Model, ModelList
from hotbed.ivy.openai import EmbeddingsAnswer, EmbeddingsBody
from hotbed.ivy.rerank import RerankAnswer, RerankBody, ScoreAnswer, ScoreBody
from hotbed.ivy.status import Health, Readiness

_REF = "#/components/schemas/{name}"
_TYPES = (
    EmbeddingsBody,
    EmbeddingsAnswer,
    RerankBody,
    RerankAnswer,
    ScoreBody,
    ScoreAnswer,
    ClassifyBody,
    ClassifyAnswer,
    ModelList,
    Model,
    Health,
    Readiness,
    ErrorAnswer,
)

_ANSWER_HEADERS = {
    "x-request-id": "The client's own id if it sent a plain one, else a new one.",
    "x-hotbed-fingerprint": "Short hash over model, tokenizer, prompt, dimensions and type: rows "
    "of two fingerprints must not be compared with each other.",
    "server-timing": "Milliseconds: tokenize, queue (the longest of the request's chunks), device "
    "(all chunks together), total.",
}
_EMBED_ERRORS = {
    400: "A field is missing, unknown, or has a wrong type or value.",
    404: "No model of this name.",
    408: "The body did not arrive in time.",
    413: "Body or inputs over a limit.",
    415: "Not JSON, or a content encoding other than gzip and deflate.",
    429: "Too busy now; see Retry-After.",
    500: "A fault of the server.",
    503: "No replica is available; see Retry-After.",
    504: "The request's time ran out.",
}


def openapi_document() -> dict[str, Any]:
    """The document as plain JSON values."""
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hotbed",
            "version": __version__,
            "description": "Text embeddings in OpenAI's dialect, reranking and classification. All "
            "paths under /v1 also work without it.",
        },
        "paths": {
            "/v1/embeddings": {"post": _work("createEmbeddings", "Embed texts or token ids.",
                                             "Embeddings", "One row an input, in order.")},
            "/v1/rerank": {"post": _work("rerank", "Rank documents for a query.", "Rerank",
                                         "Best first.")},
            "/v1/score": {"post": _work("score", "Score pairs of texts.", "Score",
                                        "One score a pair, in order.")},
            "/v1/classify": {"post": _work("classify", "Label texts.", "Classify",
                                           "Scores of all labels, a text, in order.")},
            "/v1/models": {"get": _read("listModels", "The names the model has.", "ModelList")},
            "/v1/models/{id}": {"get": _read_model()},
            "/health": {"get": _read("health", "Whether the process lives.", "Health")},
            "/ready": {
                "get": _read("ready", "Whether enough replicas are up.", "Readiness")
                | {"responses": {"200": _json("Ready.", "Readiness"),
                                 "503": _json("Not ready, or draining.", "Readiness")}}
            },
            "/metrics": {"get": _metrics()},
        },
        "components": {"schemas": schemas},
    }  # fmt: skip


def _work(operation: str, summary: str, schema: str, answered: str) -> dict[str, Any]:
    answer = _json(answered, f"{schema}Answer")
    answer["headers"] = {
        name: {"description": text, "schema": {"type": "string"}}
        for name, text in _ANSWER_HEADERS.items()
    }
    timeout = {
        "name": "x-request-timeout-ms",
        "in": "header",
        "required": False,
        "description": "Time for this request; past it 504.",
        "schema": {"type": "integer", "minimum": 1},
    }
    return {
        "operationId": operation,
        "summary": summary,
        "parameters": [timeout],
        "requestBody": {"required": True, "content": _content(f"{schema}Body")},
        "responses": {"200": answer}
        | {str(status): _json(text, "ErrorAnswer") for status, text in _EMBED_ERRORS.items()},
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
