"""GET /v1/models and /v1/models/{id}, in OpenAI's shape with a few facts more."""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from hotbed.ivy.http import Reply
from hotbed.ivy.openai import model_not_found
from hotbed.ivy.pool import ReplicaPool
from hotbed.ivy.served_model import ServedModel


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
    """null until the first replica was reached."""
    normalize: bool | None
    fingerprint: str | None
    """Of the replicas' model."""


class ModelList(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer of GET /v1/models."""

    object: Literal["list"] = "list"
    data: list[Model]


class ModelRoutes:
    """The two routes' handlers."""

    def __init__(self, model: ServedModel, pool: ReplicaPool) -> None:
        self._model = model
        self._pool = pool
        self._created = int(time.time())

    def list(self) -> Reply:
        """All names, each as a model."""
        models = ModelList(data=[self._describe(name) for name in self._model.names])
        return Reply(200, msgspec.json.encode(models))

    def get(self, name: str) -> Reply:
        """One of them. Raises MODEL_NOT_FOUND."""
        if name not in self._model.names:
            raise model_not_found(name, self._model.names)
        return Reply(200, msgspec.json.encode(self._describe(name)))

    def _describe(self, name: str) -> Model:
        info = self._pool.info
        return Model(
            id=name,
            created=self._created,
            max_model_len=self._model.expected.max_tokens,
            dimensions=None if info is None else info.dimensions,
            normalize=None if info is None else info.normalize,
            fingerprint=None if info is None else info.fingerprint,
        )
