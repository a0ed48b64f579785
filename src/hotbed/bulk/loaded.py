"""What an `Embedder` and a `Reranker` have in common: one model, loaded in this process."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from hotbed.core.model_info import ModelInfo
from hotbed.rose.engine import RoseEngine


class LoadedModel:
    """Base of both; a context manager that frees the model at its end."""

    _engine: RoseEngine

    @property
    def info(self) -> ModelInfo:
        """Facts of the loaded model."""
        return self._engine.info

    def warm_up(self) -> None:
        """Build what inputs of usual lengths need, so that first calls are as fast as later."""
        self._engine.warm_up()

    def close(self) -> None:
        """Free the model; the object cannot be used afterwards."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
