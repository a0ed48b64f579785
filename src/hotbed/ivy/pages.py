"""The pages for people, GET / and /docs: each one file without any asset from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from hotbed.ivy.http import Reply

_HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    # The page's own style and script, and requests to this server; nothing else.
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        b"img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


def docs_page() -> Reply:
    """Lists the API; it reads /openapi.json and shows what it finds."""
    return _page("docs.html")


def status_page() -> Reply:
    """Models and replicas as they are now, from /status, and a box to try them."""
    return _page("page.html")


def _page(name: str) -> Reply:
    return Reply(200, files("hotbed.ivy").joinpath(name).read_bytes(), _HEADERS)
