"""Every dialect's routes, in the order of the documentation."""

from __future__ import annotations

from hotbed.ivy.dialects.classify import ClassifyRoutes
from hotbed.ivy.dialects.cohere import CohereRoutes
from hotbed.ivy.dialects.contextual import ContextualRoute
from hotbed.ivy.dialects.openai import EmbeddingsRoute
from hotbed.ivy.dialects.outputs import OutputRoutes
from hotbed.ivy.dialects.rerank import RerankRoute
from hotbed.ivy.dialects.score import ScoreRoute
from hotbed.ivy.dialects.tei import TeiRoutes
from hotbed.ivy.dialects.tei_outputs import TeiOutputRoutes
from hotbed.ivy.dialects.tokens import TokenRoutes
from hotbed.ivy.dialects.vllm import VllmRoutes
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.registry import Registry
from hotbed.ivy.routes import Route
from hotbed.ivy.settings import IvySettings


def dialect_routes(models: Registry, settings: IvySettings, metrics: Metrics) -> list[Route]:
    """The routes that take work."""
    parts = (
        EmbeddingsRoute,
        ContextualRoute,
        CohereRoutes,
        TeiRoutes,
        TeiOutputRoutes,
        VllmRoutes,
        OutputRoutes,
        RerankRoute,
        ScoreRoute,
        ClassifyRoutes,
        TokenRoutes,
    )
    return [route for part in parts for route in part(models, settings, metrics).routes()]
