"""What the handlers of every dialect work with."""

from __future__ import annotations

from hotbed.ivy.metrics import Metrics
from hotbed.ivy.registry import Registry
from hotbed.ivy.settings import IvySettings


class Handlers:
    """Base of a dialect's handlers.

    Args:
        models: which are served.
        settings: of the gateway.
        metrics: for the pipeline's stages.
    """

    def __init__(self, models: Registry, settings: IvySettings, metrics: Metrics) -> None:
        self._models = models
        self._settings = settings
        self._metrics = metrics

    def _truncates(self, asked: bool | None) -> bool:
        """Whether to cut what is too long: as asked, else as the gateway is set."""
        return self._settings.auto_truncate if asked is None else asked
