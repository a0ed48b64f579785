"""The OpenAPI document and the docs page agree with what the server does."""

from __future__ import annotations

import json
import re

from hotbed.ivy.docs_page import docs_page
from hotbed.ivy.openai import FIELDS
from hotbed.ivy.openapi import openapi_document


def test_every_field_of_the_body_is_documented():
    body = openapi_document()["components"]["schemas"]["EmbeddingsBody"]
    assert set(body["properties"]) == set(FIELDS)
    assert body["required"] == ["input"]
    assert body["additionalProperties"] is False
    assert all(field.get("description") for field in body["properties"].values())


def test_every_reference_leads_somewhere():
    document = openapi_document()
    text = json.dumps(document)
    names = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', text))
    assert names
    assert names <= set(document["components"]["schemas"])


def test_the_page_needs_nothing_from_elsewhere():
    page = docs_page()
    text = page.body.decode()
    assert not re.search(r"https?://|//\w+\.|src=|@import|url\(", text)
    policy = dict(page.headers)[b"content-security-policy"]
    assert b"default-src 'none'" in policy
