"""GET /docs: one HTML page without any asset from elsewhere, so it works without a network."""

from __future__ import annotations

from importlib.resources import files

from hotbed.ivy.http import Reply

_HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    # The page's own style and script, and requests to this server; nothing else.
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
)


def docs_page() -> Reply:
    """The page; it reads /openapi.json and lists what it finds."""
    return Reply(200, files("hotbed.ivy").joinpath("docs.html").read_bytes(), _HEADERS)
