"""text-embeddings-inference's routes."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hotbed.core.output import OutputSpec
from hotbed.ivy.dialects.tei import TeiError, TeiInfo
from hotbed.text.tokenizer import EncodeOptions
from tests.ivy.dialects.conftest import PPLX
from tests.ivy.harness import MODEL, expected_for

pytestmark = pytest.mark.asyncio(loop_scope="package")
TEXTS = ["the cat", "a fast dog"]


async def post(client, path="/embed", **fields) -> list:
    answer = await client.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ["/embed", "/embed/", "/"])
async def test_rows_as_a_bare_list(client, tokenizer, path):
    rows = await post(client, path, inputs=TEXTS)
    assert np.array_equal(np.array(rows, np.float32), expected_for(tokenizer, TEXTS)[0])
    assert await post(client, path, inputs=TEXTS[0]) == rows[:1]


async def test_rows_are_normalised_unless_told_otherwise(client, tokenizer):
    rows = await post(client, inputs=TEXTS, model=PPLX)
    assert np.array_equal(np.array(rows, np.float32), expected_for(tokenizer, TEXTS)[0])
    raw = await post(client, inputs=TEXTS, normalize=False, dimensions=8)
    expected, _ = expected_for(tokenizer, TEXTS, OutputSpec(dimensions=8, normalize=False))
    assert np.array_equal(np.array(raw, np.float32), expected)


async def test_ids_prompts_and_truncation(client, tokenizer):
    ids = tokenizer.encode(["the cat"]).batch.token_ids.tolist()
    assert await post(client, inputs=[ids]) == await post(client, inputs=["the cat"])
    with_prompt = await post(client, inputs=TEXTS, prompt_name="query")
    expected, _ = expected_for(tokenizer, TEXTS, options=EncodeOptions(prefix="query: "))
    assert np.array_equal(np.array(with_prompt, np.float32), expected)
    text = "the cat is a dog " * 30
    for direction in ("Left", "left", "Right", None):
        rows = await post(client, inputs=text, truncate=True, truncation_direction=direction)
        side = (direction or "right").lower()
        options = EncodeOptions(truncate=True, truncation_side=side)
        expected, _ = expected_for(tokenizer, [text], options=options)
        assert np.array_equal(np.array(rows, np.float32), expected), direction


async def test_similarity_is_the_cosine(client, tokenizer):
    inputs = {"source_sentence": "the cat", "sentences": ["the cat", *TEXTS]}
    scores = await post(client, "/similarity", inputs=inputs)
    rows, _ = expected_for(tokenizer, ["the cat", *TEXTS])
    assert np.allclose(scores, rows @ rows[0], atol=1e-6)
    assert abs(scores[0] - 1) < 1e-6


async def test_decode(client, tokenizer):
    ids = tokenizer.encode(["the cat"]).batch.token_ids.tolist()
    assert await post(client, "/decode", ids=ids) == ["the cat"]
    both = await post(client, "/decode", ids=[ids, ids], skip_special_tokens=False)
    assert both == ["[CLS] the cat [SEP]"] * 2


async def test_info(client):
    info = msgspec.json.decode((await client.get("/info")).content, type=TeiInfo)
    assert (info.model_id, info.max_input_length) == (MODEL, 64)
    assert info.model_type["embedding"]["pooling"]


SIMILAR = {"source_sentence": "a", "sentences": ["b"]}
BAD = [
    ("/embed", {}, 400, "inputs"),
    ("/embed", {"inputs": ""}, 400, "inputs"),
    ("/embed", {"inputs": []}, 400, "inputs"),
    ("/embed", {"inputs": ["a", " "]}, 400, "inputs[1]"),
    ("/embed", {"inputs": ["a", [1]]}, 400, "inputs[1]"),
    ("/embed", {"inputs": [999_999]}, 400, "inputs"),
    ("/embed", {"inputs": "the " * 100}, 400, "102 tokens, the limit is 64"),
    ("/embed", {"inputs": "a", "truncate": "true"}, 400, "truncate"),
    ("/embed", {"inputs": "a", "truncation_direction": "LEFT"}, 400, "truncation_direction"),
    ("/embed", {"inputs": "a", "prompt_name": "nope"}, 400, "prompt_name"),
    ("/embed", {"inputs": [5], "prompt_name": "query"}, 400, "prompt_name"),
    ("/embed", {"inputs": "a", "dimensions": 0}, 400, "dimensions"),
    ("/embed", {"inputs": "a", "dimensions": 33}, 400, "dimensions"),
    ("/embed", {"input": "a"}, 400, "inputs"),
    ("/embed", {"inputs": "a", "model": "other"}, 404, "other"),
    ("/embed", [], 400, "JSON object"),
    ("/similarity", {}, 400, "inputs"),
    ("/similarity", {"inputs": ["a"]}, 400, "inputs"),
    ("/similarity", {"inputs": {"source_sentence": "a"}}, 400, "sentences"),
    ("/similarity", {"inputs": {**SIMILAR, "sentences": []}}, 400, "inputs.sentences"),
    ("/similarity", {"inputs": {**SIMILAR, "sentences": ["b", ""]}}, 400, "inputs.sentences[1]"),
    ("/similarity", {"inputs": {**SIMILAR, "source_sentence": ""}}, 400, "inputs.source_sentence"),
    ("/similarity", {"inputs": {**SIMILAR, "more": 1}}, 400, "more"),
    ("/similarity", {"inputs": SIMILAR, "parameters": {"x": 1}}, 400, "parameters"),
    ("/decode", {}, 400, "ids"),
    ("/decode", {"ids": []}, 400, "ids"),
    ("/decode", {"ids": ["a"]}, 400, "ids"),
    ("/decode", {"ids": [-1]}, 400, "ids"),
    ("/decode", {"ids": [[1], [10**6]]}, 400, "ids[1]"),
    ("/decode", {"ids": [1, [2]]}, 400, "ids[1]"),
]


@pytest.mark.parametrize(("path", "body", "status", "says"), BAD)
async def test_a_wrong_request_is_told_what_is_wrong(client, path, body, status, says):
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    error = msgspec.json.decode(answer.content, type=TeiError)
    assert says in error.error
