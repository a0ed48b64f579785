"""One gateway with two models over real HTTP for all dialects."""

from __future__ import annotations

import gc
import inspect
import types
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from hotbed.tulip.testing import FakeEngine
from tests.ivy.harness import (
    info_for,
    model_for,
    real_tulip,
    serving,
    settings_for,
    unix_address,
)

# Perplexity's own client knows only its own names.
PPLX = "pplx-embed-v1-0.6b"


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def client(tokenizer, tmp_path_factory) -> AsyncIterator[httpx.AsyncClient]:
    """The first model is `tiny`; the second, PPLX, has Perplexity's recipe for int8 rows."""
    folder = tmp_path_factory.mktemp("dialects")
    addresses = unix_address(folder, "a"), unix_address(folder, "b")
    model = model_for(tokenizer)
    pplx = replace(
        model,
        names=(PPLX, "pplx-embed-context-v1-0.6b"),
        quantizer="pplx",
        expected=replace(model.expected, name=PPLX),
        replicas=(addresses[1],),
    )
    async with (
        real_tulip(FakeEngine(info_for(tokenizer)), addresses[0]),
        real_tulip(FakeEngine(info_for(tokenizer, name=PPLX, normalize=False)), addresses[1]),
        serving(settings_for(addresses[0]), model, pplx) as ivy,
        ivy.client() as client,
    ):
        yield client


@pytest.fixture(scope="module")
def others_left_nothing() -> Iterator[None]:
    """For modules whose warnings are ignored, since others' clients leave connections open: those
    are collected within the module, not in a test that runs later and takes warnings for errors.
    """
    yield
    gc.collect()


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """For clients that take one: it is closed, and asks no proxy."""
    with httpx.Client(trust_env=False) as client:
        yield client


@pytest.fixture
def litellm(monkeypatch) -> Iterator[types.ModuleType]:
    """LiteLLM, whose cached connections are closed again."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    module = pytest.importorskip("litellm")
    yield module
    clients = [module.module_level_client, *module.in_memory_llm_clients_cache.cache_dict.values()]
    for client in clients:
        if hasattr(client, "close") and not inspect.iscoroutinefunction(client.close):
            client.close()
