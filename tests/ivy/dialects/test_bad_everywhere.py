"""Wrong requests at every route of every dialect: a clear error in the dialect's form, never a 5xx.

Bodies that are no JSON, headers that do not fit, and every field of every body with a value of
another type, one at a time. What only one dialect can get wrong is in its own tests.
"""

from __future__ import annotations

import gzip
import json
import types
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio

from hotbed.ivy.dialects.all import dialect_routes
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.routes import Route
from hotbed.ivy.settings import IvySettings
from hotbed.tulip.testing import FakeEngine
from tests.ivy.harness import (
    Running,
    info_for,
    model_for,
    real_tulip,
    score_info,
    score_model,
    serving,
    settings_for,
    unix_address,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = "kanarienvogel"
SETTINGS = IvySettings()
# The handlers are not called: routes need nothing of the models to say what they are.
ROUTES: list[Route] = dialect_routes(types.SimpleNamespace(), SETTINGS, Metrics())  # type: ignore[arg-type]
PAIR = {"model": "rank", "query": CANARY, "documents": ["the cat"]}
GOOD: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": CANARY},
    "/v1/contextualizedembeddings": {"input": [[CANARY, "the cat"]]},
    "/v1/embed": {"texts": [CANARY]},
    "/v2/embed": {"texts": [CANARY]},
    "/similarity": {"inputs": {"source_sentence": CANARY, "sentences": ["the cat"]}},
    "/decode": {"ids": [7, 8]},
    "/pooling": {"input": CANARY},
    "/v1/multi-vector": {"input": CANARY},
    "/v1/outputs": {"input": CANARY, "outputs": ["dense", "sparse"]},
    "/v1/rerank": PAIR,
    "/v2/rerank": PAIR,
    "/v1/score": {"model": "rank", "text_1": CANARY, "text_2": "the cat"},
    "/v1/classify": {"model": "rank", "input": CANARY},
    "/predict": {"model": "rank", "inputs": CANARY},
    "/tokenize": {"inputs": CANARY},
    "/detokenize": {"tokens": [7, 8]},
}


def good(route: Route) -> dict[str, Any]:
    """A body that is answered; TEI's routes take `inputs`."""
    return dict(GOOD.get(route.path, {"inputs": CANARY}))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ivy(tokenizer, pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("everywhere")
    addresses = unix_address(folder, "a"), unix_address(folder, "b")
    model = replace(model_for(tokenizer), names=("embed",))
    rank = score_model(pairs)
    rank = replace(
        rank,
        names=("rank",),
        expected=replace(rank.expected, name="rank"),
        replicas=(addresses[1],),
    )
    async with (
        real_tulip(FakeEngine(info_for(tokenizer)), addresses[0]),
        real_tulip(FakeEngine(replace(score_info(pairs), name="rank")), addresses[1]),
        serving(settings_for(addresses[0], max_body_bytes=100_000), model, rank) as running,
    ):
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(ivy: Running):
    async with ivy.client() as client:
        yield client


def error_of(route: Route, answer: httpx.Response) -> tuple[str, str | None]:
    """(message, param) of an error in the route's own form."""
    body = msgspec.json.decode(answer.content, type=route.error)
    if hasattr(body, "error_type"):  # TEI
        return body.error, None
    detail = body if hasattr(body, "message") else body.error
    return detail.message, detail.param


def check(route: Route, answer: httpx.Response, *statuses: int) -> tuple[str, str | None]:
    assert answer.status_code in statuses, answer.text
    message, param = error_of(route, answer)
    assert 0 < len(message) < 700
    assert CANARY not in answer.text, "text of the request in an error"
    assert answer.headers["x-request-id"]
    return message, param


routes = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)


@routes
async def test_the_good_body_is_good(client: httpx.AsyncClient, route: Route):
    for path in (route.path, *route.aliases, route.path + "/"):
        answer = await client.post(path, json=good(route))
        assert answer.status_code == 200, (path, answer.text)


@routes
async def test_without_a_name_a_model_that_can_do_it_is_meant(
    client: httpx.AsyncClient, route: Route
):
    """TEI's clients send no name."""
    body = {key: value for key, value in good(route).items() if key != "model"}
    assert (await client.post(route.path, json=body)).status_code == 200


NOT_JSON = {
    "empty": b"",
    "blank": b" \n",
    "text": CANARY.encode(),
    "cut off": b'{"input": "%s' % CANARY.encode(),
    "trailing text": b'{"input": "a"} x',
    "trailing comma": b'{"input": "a",}',
    "single quotes": b"{'input': 'a'}",
    "NaN": b'{"input": NaN}',
    "invalid UTF-8": b'{"input": "\xff"}',
    "control character": b'{"input": "a\x01"}',
    "byte order mark": b'\xef\xbb\xbf{"input": "a"}',
    "UTF-16": '{"input": "a"}'.encode("utf-16"),
    "list": b'["%s"]' % CANARY.encode(),
    "string": b'"%s"' % CANARY.encode(),
    "null": b"null",
    "number": b"7",
    "nested lists": b"[" * 40_000 + b"]" * 40_000,
    "nested objects": b'{"a":' * 15_000,
    "unknown field": b'{"%s": 1}' % (b"x" * 5000),
    "no field": b"{}",
}
JSON = {"Content-Type": "application/json"}


@routes
@pytest.mark.parametrize("name", NOT_JSON)
async def test_what_is_no_good_json_is_400(client: httpx.AsyncClient, route: Route, name: str):
    check(route, await client.post(route.path, content=NOT_JSON[name], headers=JSON), 400)


@routes
async def test_headers_and_sizes(client: httpx.AsyncClient, route: Route):
    content = json.dumps(good(route)).encode()

    async def ask(content: bytes, **headers: str) -> httpx.Response:
        return await client.post(route.path, content=content, headers=headers)

    check(route, await ask(content, **{"Content-Type": "text/plain"}), 415)
    check(route, await ask(content, **JSON, **{"Content-Encoding": "br"}), 415)
    check(route, await ask(content, **JSON, **{"Content-Encoding": "gzip"}), 400)
    bomb = gzip.compress(b"0" * 1_000_000)
    check(route, await ask(bomb, **JSON, **{"Content-Encoding": "gzip"}), 413)
    check(route, await ask(content + b" " * 100_000, **JSON), 413)
    check(route, await ask(content, **JSON, **{"X-Request-Timeout-Ms": "soon"}), 400)


@routes
async def test_an_unknown_model_and_an_unknown_field_are_named(
    client: httpx.AsyncClient, route: Route
):
    answer = await client.post(route.path, json={**good(route), "model": "gpt-4"})
    message, _ = check(route, answer, 404)
    assert "gpt-4" in message
    assert "embed, rank" in message
    answer = await client.post(route.path, json={**good(route), "dimension": 8})
    message, param = check(route, answer, 400)
    assert "dimension" in message
    assert param in (None, "dimension")


# One value of each JSON type, and numbers that no field takes.
VALUES = {
    "string": CANARY, "object": {"key": 1}, "true": True, "fraction": 1.5, "negative": -7,
    "huge": 10**30, "list of null": [None], "list of fractions": [1.5], "deep list": [[[[1]]]],
    "list of objects": [{"a": {}}],
}  # fmt: skip


def takes(kind: Any, value: Any) -> bool:
    """Whether the field's type lets the value in; then it may be right."""
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def fields(values: dict[str, Any], *, fit: bool) -> list[Any]:
    """(route, field, values that its type lets in, or does not)."""
    cases = []
    for route in ROUTES:
        for field in msgspec.structs.fields(route.body):
            some = [value for value in values.values() if takes(field.type, value) is fit]
            cases.append(pytest.param(route, field.name, some, id=f"{route.path}-{field.name}"))
    return cases


WRONG = fields(VALUES, fit=False)


async def test_there_are_enough_of_them():
    assert sum(len(case.values[2]) for case in WRONG) > 900


@pytest.mark.parametrize(("route", "field", "values"), WRONG)
async def test_a_value_of_another_type_is_named(
    client: httpx.AsyncClient, route: Route, field: str, values: list[Any]
):
    for value in values:
        answer = await client.post(route.path, json={**good(route), field: value})
        message, param = check(route, answer, 400)
        assert field in message
        assert param is None or param.startswith(field)


MORE = {
    "empty string": "", "zero": 0, "empty list": [], "int32": 2**31, "int64": 2**63 - 1, "one": 1,
    "false": False, "list of strings": [CANARY, ""], "null": None, "NUL": "\0",
    "lists of strings": [[CANARY], []],
}  # fmt: skip


@pytest.mark.parametrize(("route", "field", "values"), fields({**VALUES, **MORE}, fit=True))
async def test_an_odd_value_is_answered_or_refused(
    client: httpx.AsyncClient, route: Route, field: str, values: list[Any]
):
    """Values that the types let in: right or wrong, but never a fault of ours."""
    for value in values:
        if field == "model" and value == CANARY:  # names of models are echoed
            continue
        answer = await client.post(route.path, json={**good(route), field: value})
        if answer.status_code != 200:
            check(route, answer, 400, 404, 413)


async def test_after_all_that_every_route_still_answers(ivy: Running, client: httpx.AsyncClient):
    for route in ROUTES:
        assert (await client.post(route.path, json=good(route))).status_code == 200
    assert ivy.gateway.door.num_in_flight == 0
    assert ivy.gateway.door.budget.held_bytes == 0
    assert all(service.pool.pending.held == 0 for service in ivy.gateway.models.services)
