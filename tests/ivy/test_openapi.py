"""The OpenAPI document and the docs page agree with what the server does."""

from __future__ import annotations

import json
import re

import orjson
import pytest

from hotbed.ivy.app import Gateway
from hotbed.ivy.pages import docs_page, status_page
from tests.ivy.harness import settings_for


@pytest.fixture
async def document(model):
    gateway = Gateway(settings_for("unix:/nowhere"), model)
    reply = await gateway._routes["/openapi.json"]["GET"].handler({}, None)
    yield orjson.loads(reply.body)
    await gateway.close()


def bodies(document):
    """(path, schema) of every body that can be posted."""
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        if "post" in methods:
            content = methods["post"]["requestBody"]["content"]["application/json"]
            yield path, schemas[content["schema"]["$ref"].rpartition("/")[2]]


async def test_every_field_of_every_body_is_documented(document):
    paths = dict(bodies(document))
    assert "/v1/embeddings" in paths
    for path, body in paths.items():
        assert body["additionalProperties"] is False, path
        for name, field in body["properties"].items():
            assert field.get("description"), (path, name)


async def test_every_reference_leads_somewhere(document):
    names = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document)))
    assert names
    assert names <= set(document["components"]["schemas"])


async def test_every_operation_has_a_name_of_its_own(document):
    names = [m["operationId"] for methods in document["paths"].values() for m in methods.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("page", [docs_page(), status_page()], ids=["docs", "status"])
def test_a_page_needs_nothing_from_elsewhere(page):
    text = page.body.decode()
    assert not re.search(r"https?://|//\w+\.|src=|@import|url\(", text)
    policy = dict(page.headers)[b"content-security-policy"]
    assert b"default-src 'none'" in policy
