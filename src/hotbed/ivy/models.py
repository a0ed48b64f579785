"""GET /v1/models and /v1/models/{id}, in OpenAI's shape with a few facts more."""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from hotbed.core.model_info import ModelInfo
from hotbed.ivy.http import Reply
from hotbed.ivy.registry import ModelService, Registry


class Model(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One name under which the model is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    """Unix time of the gateway's start."""
    owned_by: Literal["hotbed"] = "hotbed"
    max_model_len: int
    """Longest input in tokens, special tokens included."""
    dimensions: int | None
    """Of dense rows or scores; null without them, and until the first replica was reached."""
    normalize: bool | None
    fingerprint: str | None
    """Of the replicas' model."""
    outputs: dict[str, int] | None
    """Native width of each: dimensions of vectors, of sparse the number of token ids; of a model
    that scores, its labels."""


class ModelList(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer of GET /v1/models."""

    object: Literal["list"] = "list"
    data: list[Model]


class ModelRoutes:
    """The two routes' handlers."""

    def __init__(self, models: Registry) -> None:
        self._models = models
        self._created = int(time.time())

    def list(self) -> Reply:
        """All names, each as a model."""
        models = ModelList(
            data=[
                self._describe(name, service)
                for service in self._models.services
                for name in service.model.names
            ]
        )
        return Reply(200, msgspec.json.encode(models))

    def get(self, name: str) -> Reply:
        """One of them. Raises MODEL_NOT_FOUND."""
        return Reply(200, msgspec.json.encode(self._describe(name, self._models.find(name))))

    def _describe(self, name: str, service: ModelService) -> Model:
        info = service.pool.info
        return Model(
            id=name,
            created=self._created,
            max_model_len=service.model.expected.max_tokens,
            dimensions=None if info is None or info.first_output != "dense" else info.dimensions,
            normalize=None if info is None else info.normalize,
            fingerprint=None if info is None else info.fingerprint,
            outputs=None if info is None else _outputs(info),
        )


def _outputs(info: ModelInfo) -> dict[str, int]:
    if info.task == "score":
        return {"scores": info.dimensions}
    return {str(kind): width for kind, width in info.widths.items()}
