"""/tokenize in two dialects, /detokenize."""

from __future__ import annotations

import pytest

from hotbed.text.tokenizer import EncodeOptions

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def post(client, path="/tokenize", **fields):
    answer = await client.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
async def test_teis_tokens_have_texts_and_places(client, tokenizer, path):
    text = "The catx"
    (tokens,) = await post(client, path, inputs=text)
    assert [t["id"] for t in tokens] == tokenizer.encode([text]).batch.token_ids.tolist()
    assert [t["special"] for t in tokens] == [True, *[False] * (len(tokens) - 2), True]
    assert tokens[0] == {"id": tokens[0]["id"], "text": "[CLS]", "special": True, "start": None,
                         "stop": None}  # fmt: skip
    assert (tokens[1]["text"], tokens[1]["start"], tokens[1]["stop"]) == ("The", 0, 3)
    inner = tokens[1:-1]
    assert all(text[t["start"] : t["stop"]] == t["text"] for t in inner)


async def test_a_list_a_prompt_and_no_special_tokens(client, tokenizer):
    lists = await post(client, inputs=["the cat", ""], add_special_tokens=False)
    assert [len(tokens) for tokens in lists] == [2, 0]
    (tokens,) = await post(client, inputs=["the cat"], prompt_name="query")
    options = EncodeOptions(prefix="query: ")
    assert [t["id"] for t in tokens] == tokenizer.encode(
        ["the cat"], options
    ).batch.token_ids.tolist()


async def test_vllms_tokens(client, tokenizer):
    answer = await post(client, prompt="the cat", return_token_strs=True)
    ids = tokenizer.encode(["the cat"]).batch.token_ids.tolist()
    assert answer == {
        "count": 4, "max_model_len": 64, "tokens": ids,
        "token_strs": ["[CLS]", "the", "cat", "[SEP]"],
    }  # fmt: skip
    bare = await post(client, prompt="the cat", add_special_tokens=False)
    assert (bare["tokens"], bare["token_strs"]) == (ids[1:-1], None)
    assert await post(client, "/detokenize", tokens=ids[1:-1]) == {"prompt": "the cat"}


async def test_a_text_longer_than_the_model_takes_is_still_shown(client):
    assert (await post(client, prompt="the " * 5000))["count"] == 5002


async def test_half_an_emoji_is_shown_as_the_model_gets_it(client):
    answer = await client.post("/tokenize", content=b'{"prompt": "a \\ud83d"}',
                               headers={"content-type": "application/json"})  # fmt: skip
    assert answer.status_code == 200


BAD = [
    ("/tokenize", {}, "inputs"),
    ("/tokenize", {"inputs": "a", "prompt": "a"}, "inputs"),
    ("/tokenize", {"inputs": [1]}, "inputs"),
    ("/tokenize", {"inputs": ["a"] * 2049}, "2049"),
    ("/tokenize", {"prompt": ["a"]}, "prompt"),
    ("/tokenize", {"prompt": "a" * 2_000_001}, "prompt has 2000001 characters"),
    ("/tokenize", {"inputs": "a", "prompt_name": "nope"}, "prompt_name"),
    ("/tokenize", {"prompt": "a", "prompt_name": "query"}, "prompt_name"),
    ("/tokenize", {"inputs": "a", "return_token_strs": True}, "return_token_strs"),
    ("/tokenize", {"messages": []}, "messages"),
    ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": []}, "tokens"),
    ("/detokenize", {"tokens": [-1]}, "tokens[0] is -1"),
    ("/detokenize", {"tokens": [10**9]}, "vocabulary"),
    ("/detokenize", {"tokens": "a"}, "tokens"),
    ("/detokenize", {"tokens": [[1]]}, "tokens[0]"),
]


@pytest.mark.parametrize(("path", "body", "says"), BAD)
async def test_a_wrong_request_is_told_what_is_wrong(client, path, body, says):
    answer = await client.post(path, json=body)
    assert answer.status_code in (400, 413), answer.text
    assert says in answer.json()["error"]["message"]
