"""Texts over HTTP to a real engine and back: each output is what the Embedder gives in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotbed import Embedder
from hotbed.checkpoint.load import load_checkpoint
from hotbed.ivy.served_model import load_served_models
from hotbed.ivy.settings import IvySettings
from hotbed.rose.engine import RoseEngine
from hotbed.tulip.settings import TulipSettings
from tests.ivy.harness import serving
from tests.support.output_models import make_bge_m3, make_colbert, make_mlm
from tests.tulip.conftest import StartTulip, start_tulip

__all__ = ["start_tulip"]  # the fixture

TEXTS = ["the cat, a dog. and the house", "search this long document", "x"]


@pytest.mark.parametrize(
    ("make", "kinds", "task"),
    [
        (make_bge_m3, ("dense", "sparse", "multi_vector", "tokens"), "auto"),
        (make_colbert, ("multi_vector", "tokens"), "auto"),
        (lambda folder: make_mlm(folder, "bert"), ("sparse", "tokens"), "sparse"),
    ],
    ids=["bge-m3", "colbert", "splade"],
)
async def test_outputs_over_http_are_those_of_the_embedder(
    make: Any, kinds: tuple[Any, ...], task: Any, tmp_path: Path, start_tulip: StartTulip
) -> None:
    folder = str(make(tmp_path / "m"))
    checkpoint = load_checkpoint(folder, task=task)

    def load(_: TulipSettings) -> RoseEngine:
        return RoseEngine.load(checkpoint, device="cpu", num_threads=1)

    tulip = await start_tulip(load, model=folder)
    settings = IvySettings(model=folder, replicas=(tulip.address,), port=0, task=task)
    async with serving(settings, *load_served_models(settings)) as ivy, ivy.client() as client:
        fields = {"input": TEXTS, "outputs": kinds, "input_type": "document"}
        answer = await client.post("/v1/outputs", json=fields)
        assert answer.status_code == 200, answer.text
        got = answer.json()["data"]
        models = (await client.get("/v1/models")).json()["data"]
        assert set(models[0]["outputs"]) == set(kinds)
    in_process = "sparse" if task == "sparse" else "embed"
    with Embedder(folder, device="cpu", num_threads=1, task=in_process) as embedder:
        expected = embedder.embed_outputs(TEXTS, kinds, input_type="document")
    for index, one in enumerate(got):
        for kind in kinds:
            wanted = expected[kind][index]
            if kind == "sparse":
                made = dict(zip(one[kind]["indices"], one[kind]["values"], strict=True))
                assert made == pytest.approx(wanted, rel=1e-3, abs=1e-5)
            else:
                np.testing.assert_allclose(one[kind], wanted, atol=1e-4)


def test_a_bulk_job_refuses_a_model_without_dense_rows(tmp_path: Path) -> None:
    from hotbed.bulk.local import LocalModel, ModelOptions
    from hotbed.core.errors import HotbedError

    folder = make_colbert(tmp_path / "m")
    with pytest.raises(HotbedError, match="its outputs are: multi_vector, tokens"):
        LocalModel(ModelOptions(model=str(folder)))
