"""Several models in one gateway, found by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hotbed.ivy.app import Gateway
from tests.ivy.harness import (
    MODEL,
    expected_for,
    in_process,
    info_for,
    scripted,
    settings_for,
    wait_until,
)


@pytest.fixture
def other(model, addresses):
    expected = replace(model.expected, name="org/other")
    names = ("org/other", "second")
    return replace(model, names=names, expected=expected, replicas=(addresses[1],))


async def test_each_model_is_asked_by_its_names_and_answers_from_its_own_replicas(
    tokenizer, model, other, info, addresses
):
    async with (
        scripted(info, addresses[0]) as first,
        scripted(info_for(tokenizer, name="org/other", fingerprint="2"), addresses[1]) as second,
        in_process(settings_for(addresses[0]), model, other) as (_, client),
    ):
        seen = {}
        for name in (None, "tiny", "alias", MODEL, "second", "org/other"):
            answer = await client.post("/v1/embeddings", json={"input": "the cat", "model": name})
            assert answer.status_code == 200
            row = np.array(answer.json()["data"][0]["embedding"], np.float32)
            assert np.array_equal(row, expected_for(tokenizer, ["the cat"])[0][0])
            seen[name] = answer.json()["model"]
        assert seen == {None: MODEL, "tiny": MODEL, "alias": MODEL, MODEL: MODEL,
                        "second": "org/other", "org/other": "org/other"}  # fmt: skip
        assert (len(first.items), len(second.items)) == (4, 2)
        listed = [m["id"] for m in (await client.get("/v1/models")).json()["data"]]
        assert listed == [MODEL, "tiny", "alias", "org/other", "second"]
        assert (await client.get("/v1/models/second")).json()["fingerprint"] == "2"


async def test_an_unknown_model_is_404_and_lists_the_names_of_all(model, other, info, addresses):
    async with (
        scripted(info, addresses[0]),
        in_process(settings_for(addresses[0]), model, other, num_up=1) as (_, client),
    ):
        answer = await client.post("/v1/embeddings", json={"input": "a", "model": "gpt" * 99})
        assert answer.status_code == 404
        assert "org/tiny, tiny, alias, org/other, second" in answer.json()["error"]["message"]
        assert len(answer.json()["error"]["message"]) < 200


async def test_ready_asks_for_every_model(tokenizer, model, other, info, addresses):
    async with (
        scripted(info, addresses[0]),
        in_process(settings_for(addresses[0]), model, other, num_up=1) as (gateway, client),
    ):
        ready = await client.get("/ready")
        assert ready.status_code == 503
        assert [r["model"] for r in ready.json()["replicas"]] == [MODEL, "org/other"]
        async with scripted(info_for(tokenizer, name="org/other"), addresses[1]):
            await wait_until(lambda: gateway.models.is_ready)
            assert (await client.get("/ready")).status_code == 200


def test_two_models_cannot_share_a_name(model, other):
    clash = replace(other, names=("org/other", "alias"))
    with pytest.raises(ValueError, match="'alias'"):
        Gateway(settings_for("a:1"), model, clash)
