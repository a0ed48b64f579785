"""Every kind of wrong request over real HTTP: a clear 4xx, never 500, nothing wedged."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.ivy.conftest import MAX_TOKENS
from tests.ivy.harness import (
    Running,
    info_for,
    model_for,
    scripted,
    serving,
    settings_for,
    unix_address,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAX_BODY = 200_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ivy(tokenizer, tmp_path_factory):
    address = unix_address(tmp_path_factory.mktemp("bad"))
    settings = settings_for(address, max_body_bytes=MAX_BODY, max_request_tokens=5000)
    async with (
        scripted(info_for(tokenizer), address),
        serving(settings, model_for(tokenizer)) as running,
    ):
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(ivy: Running):
    async with ivy.client() as client:
        yield client


@dataclass
class Bad:
    """A request and what its answer must be."""

    name: str
    body: Any
    status: int = 400
    param: str | None = None
    says: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)

    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def inp(name: str, value: Any, param: str | None = "input", *says: str) -> Bad:
    return Bad(f"input {name}", {"input": value}, param=param, says=says)


def option(name: str, value: Any, *says: str) -> Bad:
    shown = f"{name}={str(value)[:24]}"
    return Bad(shown, {"input": "a", name: value}, param=name, says=says)


INPUTS = [
    Bad("empty object", {}, param="input", says=("missing", "list of strings")),
    inp("null", None, "input", "null"),
    inp("empty string", "", "input", "input"),
    inp("blank string", "  ", "input"),
    inp("newlines", "\n\t", "input"),
    inp("zero width", "\u200b", "input"),
    inp("empty list", [], "input", "at least 1"),
    inp("list of empty string", [""], "input[0]"),
    inp("one blank among good ones", ["ok", " "], "input[1]"),
    inp("list of empty list", [[]], "input[0]"),
    inp("empty list among good ones", [[5], []], "input[1]"),
    inp("nested strings", [["x"]], "input[0][0]", "str"),
    inp("string and list", ["x", [1]], "input[1]"),
    inp("string and number", ["x", 1], "input[1]"),
    inp("number and string", [1, "x"], "input[1]"),
    inp("null in a list", ["x", None], "input[1]", "null"),
    inp("too deep", [[[1]]], "input[0][0]"),
    inp("object", {"text": "x"}, "input", "object"),
    inp("list of other objects", [{"image": "x"}], "input[0]", "image"),
    inp("list of objects without a text", [{}], "input[0]", "text"),
    inp("list of objects and strings", ["a", {"text": "x"}], "input[1]"),
    inp("number", 7, "input", "int"),
    inp("true", True, "input", "bool"),
    inp("list of true", [True], "input[0]", "bool"),
    inp("fractional id", [1.5], "input[0]", "float"),
    inp("fractional id in a list", [[1, 2.0]], "input[0][1]", "float"),
    inp("id over the vocabulary", [999_999], "input", "999999", "check_embedding_ctx_length"),
    inp("id over the vocabulary in a list", [[5], [999_999]], "input[1]", "[1][0]", "vocabulary"),
    inp("negative id", [-1], "input", "-1"),
    inp("id over 32 bits", [2**31], "input"),
    inp("id over 64 bits", [10**20], "input"),
    inp("id over 64 bits in a list", [[1], [10**30]], "input[1]"),
    inp("too long", "the " * 70, "input", "72", str(MAX_TOKENS), "truncate"),
    inp("too long in a list", ["a", "the " * 70], "input[1]", "72", str(MAX_TOKENS)),
    inp("too many ids", [7] * (MAX_TOKENS + 1), "input", str(MAX_TOKENS + 1), str(MAX_TOKENS)),
    inp("2,049 inputs", ["a"] * 2049, "input", "2049", "2048"),
    inp("2,049 id lists", [[7]] * 2049, "input", "2049", "2048"),
    Bad(
        "too many tokens in all",
        {"input": ["the " * 60] * 100},
        status=413,
        param="input",
        says=("6200", "5000", "max_request_tokens"),
    ),
]

OPTIONS = [
    Bad("too many ids in all", {"input": [7] * 5001}, 413, "input", ("5001", "5000")),
    *(option("dimensions", v, "integer of at least 1") for v in (0, -1, 1.0, True, "8", [8])),
    *(option("dimensions", v, "32") for v in (33, 100_000)),
    option("dimensions", 10**20),
    Bad("binary of 20 dimensions", {"input": "a", "encoding_format": "binary", "dimensions": 20},
        param="dimensions", says=("20", "8")),
    option("late_chunking", 1, "true or false"),
    Bad("late chunking of ids", {"input": [7], "late_chunking": True}, param="late_chunking"),
    Bad("late chunking of a blank", {"input": ["a", " "], "late_chunking": True}, param="input[1]"),
    Bad("late chunking of too much", {"input": ["the " * 40] * 2, "late_chunking": True},
        param="input", says=("82", "64")),
    option("task", "summarise", "retrieval.query"),
    option("task", 1),
    option("embedding_type", "float16", "base64"),
    option("embedding_type", ["float", "int8"], "one type"),
    option("embedding_type", []),
    option("normalized", 1, "true or false"),
    Bad("normalize twice", {"input": "a", "normalize": True, "normalized": True},
        param="normalized", says=("mean the same",)),
    Bad("two kinds of prompt", {"input": "a", "task": "retrieval.query", "input_type": "query"},
        param="task"),
    Bad("task with ids", {"input": [7], "task": "retrieval.query"}, param="task"),
    Bad("513 texts for Perplexity", {"input": ["a"] * 513, "encoding_format": "base64_int8"},
        param="input", says=("513", "512")),
    Bad("ids for Perplexity", {"input": [7], "encoding_format": "base64_binary"}, param="input",
        says=("token ids",)),
    *(option("encoding_format", v, "float", "base64") for v in ("float16", "Float", "", 1)),
    *(option("input_type", v, "query", "document") for v in ("passage", "", 1)),
    option("prompt_name", "nope", "document", "query"),
    option("prompt_name", 1),
    *(option("truncate", v, "true or false") for v in ("true", 1, "END")),
    *(option("truncation_side", v, "left", "right") for v in ("Left", "both", 0)),
    *(option("normalize", v, "true or false") for v in ("false", 0)),
    *(option("user", v, "string") for v in (1, ["a"], {"a": 1})),
    *(option("model", v) for v in (1, ["tiny"])),
    option("dimension", 8, "dimension", "known fields", "dimensions"),
    option("inputs", ["a"], "known fields"),
    option("Normalize", True, "known fields"),
    option("x" * 5000, 1, "known fields"),
    Bad(
        "prompt_name with ids", {"input": [7], "prompt_name": "query"}, param="prompt_name",
        says=("token ids",),
    ),
    Bad("input_type with ids", {"input": [[7]], "input_type": "query"}, param="input_type"),
    Bad(
        "both prompts", {"input": "a", "prompt_name": "query", "input_type": "query"},
        param="prompt_name",
    ),
    Bad("another model", {"input": "a", "model": "text-embedding-3-small"}, 404, "model",
        ("org/tiny", "alias")),
    Bad("no model at all", {"input": "a", "model": ""}, 404, "model", ("org/tiny",)),
]  # fmt: skip

JSON = {"Content-Type": "application/json"}
NOT_JSON = [
    ("empty", b"", "empty"),
    ("blank", b" \n", "empty"),
    ("text", b"hello", "not valid JSON"),
    ("cut off", b'{"input": "a', "not valid JSON"),
    ("cut off in an escape", b'{"input": "a\\u00', "not valid JSON"),
    ("cut off in a surrogate", b'{"input": "\\ud83d\\u', "not valid JSON"),
    ("surrogate without a string's end", b'{"input": "\\ud83d', "not valid JSON"),
    ("trailing text", b'{"input": "a"} x', "not valid JSON"),
    ("trailing comma", b'{"input": "a",}', "not valid JSON"),
    ("single quotes", b"{'input': 'a'}", "not valid JSON"),
    ("NaN", b'{"input": [NaN]}', "not valid JSON"),
    ("Infinity", b'{"input": "a", "dimensions": Infinity}', "not valid JSON"),
    ("invalid UTF-8", b'{"input": "\xff"}', "not valid JSON"),
    ("UTF-8 of a surrogate", b'{"input": "\xed\xa0\xbd"}', "not valid JSON"),
    ("control character", b'{"input": "a\x01"}', "not valid JSON"),
    ("UTF-8 byte order mark", b'\xef\xbb\xbf{"input": "a"}', "byte order mark"),
    ("UTF-16", '{"input": "a"}'.encode("utf-16"), "byte order mark"),
    ("top-level list", b'["a"]', "JSON object"),
    ("top-level string", b'"a"', "JSON object"),
    ("top-level null", b"null", "JSON object"),
    ("nesting bomb", b'{"input": ' + b"[" * 90_000 + b"]" * 90_000 + b"}", "input"),
    ("nesting bomb in an unknown field", b'{"x": ' + b"[" * 90_000 + b"}", "Unknown field"),
    ("nesting bomb of objects", b'{"input":' * 20_000, "input"),
    ("huge number", b'{"input": [1' + b"0" * 5000 + b"]}", ""),
    ("huge dimensions", b'{"input": "a", "dimensions": 1' + b"0" * 5000 + b"}", "dimensions"),
    ("huge exponent", b'{"input": "a", "dimensions": 1e999999}', ""),
]
BODIES = [Bad(name, body, says=(says,), param=...) for name, body, says in NOT_JSON]  # type: ignore[arg-type]

GOOD = json.dumps({"input": "the cat"}).encode()
HEADERS = [
    Bad("curl's default type", GOOD, 415, says=("application/json", "-H"),
        headers={"Content-Type": "application/x-www-form-urlencoded"}),
    Bad("text type", GOOD, 415, says=("application/json",), headers={"Content-Type": "text/json"}),
    Bad("no type", GOOD, 415, says=("application/json", "none"), headers={"Content-Type": ""}),
    Bad("brotli", GOOD, 415, says=("gzip",), headers={"Content-Encoding": "br"}),
    Bad("two encodings", GOOD, 415, headers={"Content-Encoding": "gzip, gzip"}),
    Bad("no gzip at all", GOOD, 400, says=("gzip",), headers={"Content-Encoding": "gzip"}),
    Bad("half a gzip", gzip.compress(GOOD)[:-9], 400, headers={"Content-Encoding": "gzip"}),
    Bad("no deflate at all", b"\xff" + GOOD, 400, headers={"Content-Encoding": "deflate"}),
    Bad("zip bomb", gzip.compress(b"0" * 10_000_000), 413, says=("200000",),
        headers={"Content-Encoding": "gzip"}),
    Bad("body over the limit", GOOD + b" " * MAX_BODY, 413, says=("200000", "max_body_bytes")),
    *(Bad(f"timeout {v!r}", GOOD, 400, says=("x-request-timeout-ms",),
          headers={"X-Request-Timeout-Ms": v}) for v in ("0", "-5", "1.5", "soon", "9" * 30)),
]  # fmt: skip

TABLE = [*INPUTS, *OPTIONS, *BODIES, *HEADERS]


@pytest.mark.parametrize("bad", TABLE, ids=lambda bad: bad.name)
async def test_a_wrong_request_is_told_what_is_wrong(client: httpx.AsyncClient, bad: Bad):
    answer = await client.post(
        "/v1/embeddings", content=bad.content(), headers={**JSON, **bad.headers}
    )
    assert answer.status_code == bad.status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    if bad.param is not ...:
        assert error["param"] == bad.param or (error["param"] or "")[:64] == (bad.param or "")[:64]
    for part in bad.says:
        assert part in error["message"]
    assert len(error["message"]) < 600
    assert answer.headers["x-request-id"]


async def test_after_all_that_the_server_still_answers(ivy: Running, client: httpx.AsyncClient):
    # Case 60: {} wedged the server, the next request hung.
    answer = await client.post("/v1/embeddings", json={"input": "the cat"})
    assert answer.status_code == 200
    assert ivy.gateway.door.num_in_flight == 0
    assert ivy.gateway.door.budget.held_bytes == 0


async def test_a_missing_content_type_is_415(ivy: Running):
    request = (
        f"POST /v1/embeddings HTTP/1.1\r\nHost: ivy\r\nContent-Length: {len(GOOD)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + GOOD
    reader, writer = await asyncio.open_connection("127.0.0.1", ivy.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 415 ")
    assert b"there is none" in answer


GOOD_TEXTS = [
    ("NUL byte", '"a\\u0000b"'),
    ("half an emoji", '"a\\ud83d"'),
    ("other half", '["\\ude00 a"]'),
    ("leading and trailing space", '"  the cat "'),
    ("special token", '"[SEP]"'),
    ("right to left and combining", '"שלום é"'),
    ("four-byte characters", '"😀😀"'),
]


@pytest.mark.parametrize(("name", "literal"), GOOD_TEXTS, ids=[name for name, _ in GOOD_TEXTS])
async def test_odd_text_is_embedded(client: httpx.AsyncClient, name: str, literal: str):
    answer = await client.post(
        "/v1/embeddings", content=('{"input": ' + literal + "}").encode(), headers=JSON
    )
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"]
)
async def test_json_content_types(client: httpx.AsyncClient, content_type: str):
    answer = await client.post(
        "/v1/embeddings", content=GOOD, headers={"Content-Type": content_type}
    )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(GOOD)),
        ("X-GZIP", gzip.compress(GOOD)),
        ("deflate", zlib.compress(GOOD)),
        ("identity", GOOD),
    ],
    ids=["gzip", "x-gzip", "deflate", "identity"],
)
async def test_compressed_bodies_give_the_same_answer(client, encoding: str, body: bytes):
    plain = await client.post("/v1/embeddings", content=GOOD, headers=JSON)
    packed = await client.post(
        "/v1/embeddings", content=body, headers={**JSON, "Content-Encoding": encoding}
    )
    assert packed.status_code == 200
    assert packed.content == plain.content


async def test_the_body_limit_is_exact(client: httpx.AsyncClient):
    # Case 81: the flag was not applied.
    body = GOOD + b" " * (MAX_BODY - len(GOOD))
    assert (await client.post("/v1/embeddings", content=body, headers=JSON)).status_code == 200
    answer = await client.post("/v1/embeddings", content=body + b" ", headers=JSON)
    assert answer.status_code == 413


async def test_a_body_without_a_length_is_read_and_capped_too(client: httpx.AsyncClient):
    async def parts(num_spaces: int):
        yield GOOD
        for _ in range(num_spaces // 10_000):
            yield b" " * 10_000

    small = await client.post("/v1/embeddings", content=parts(20_000), headers=JSON)
    assert small.status_code == 200
    large = await client.post("/v1/embeddings", content=parts(300_000), headers=JSON)
    assert large.status_code == 413


@pytest.mark.parametrize("excess", [-1, 0, 1])
async def test_lengths_around_the_models_limit(client: httpx.AsyncClient, excess: int):
    # Case 83: inputs of exactly the limit hung.
    text = "the " * (MAX_TOKENS - 2 + excess)
    answer = await client.post("/v1/embeddings", json={"input": text})
    assert answer.status_code == (200 if excess <= 0 else 400)
    ids = await client.post("/v1/embeddings", json={"input": [7] * (MAX_TOKENS + excess)})
    assert ids.status_code == (200 if excess <= 0 else 400)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
async def test_truncation_does_not_depend_on_the_order(client: httpx.AsyncClient, order):
    # Case 82: [short, long] with truncation never returned.
    texts = ["the cat", "the " * 500]
    answer = await client.post(
        "/v1/embeddings", json={"input": [texts[i] for i in order], "truncate": True}
    )
    assert answer.status_code == 200
    assert answer.json()["usage"]["prompt_tokens"] == 4 + MAX_TOKENS
