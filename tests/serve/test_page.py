"""The start-up page tells the facts, and its line to paste works as it stands."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import replace

import pytest
from rich.console import Console

from hotbed import __version__
from hotbed.core.model_info import ModelInfo
from hotbed.serve.page import Service, base_url, show_page

INFO = ModelInfo(
    name="org/some-model",
    task="embed",
    architecture="bert",
    dimensions=384,
    max_tokens=8192,
    vocab_size=30_000,
    pooling="mean",
    normalize=True,
    dtype="float32",
    device="cpu",
    fingerprint="0123abcd",
)
SERVICE = Service(
    info=INFO,
    served_name="it's [mine]",
    base_url="http://127.0.0.1:8123",
    num_replicas=2,
    num_workers=3,
    num_threads=4,
)


def shown(service: Service, *, terminal: bool, width: int = 100) -> str:
    file = io.StringIO()
    show_page(Console(file=file, force_terminal=terminal, width=width, color_system=None), service)
    return file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_page_holds_the_facts(terminal: bool) -> None:
    page = shown(SERVICE, terminal=terminal)
    for fact in (
        f"Hotbed {__version__} is ready",
        "org/some-model",
        "384",
        "8,192",
        "float32 on cpu",
        "0123abcd",
        "2, 4 threads each",
        "http://127.0.0.1:8123/v1",
        "http://127.0.0.1:8123/docs",
        "http://127.0.0.1:8123/metrics",
    ):
        assert fact in page, fact


def test_plain_page_has_a_line_a_fact_and_no_frame() -> None:
    title, *lines = shown(SERVICE, terminal=False).splitlines()
    assert title == f"Hotbed {__version__} is ready"
    assert all(": " in line for line in lines)
    assert "workers: 3" in lines


@pytest.mark.parametrize("terminal", [False, True])
def test_line_to_paste_is_one_valid_request_whatever_the_name(terminal: bool) -> None:
    page = shown(SERVICE, terminal=terminal, width=60)
    (line,) = [line for line in page.splitlines() if "curl" in line]
    words = shlex.split(line.removeprefix("try: "))
    assert "http://127.0.0.1:8123/v1/embeddings" in words
    assert json.loads(words[-1]) == {"model": "it's [mine]", "input": "Hello"}


def test_name_in_brackets_is_not_taken_for_markup() -> None:
    named = replace(SERVICE, info=replace(INFO, name="folder/[red]x"))
    assert "folder/[red]x" in shown(named, terminal=True)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://localhost:80"),
        ("::", "http://localhost:80"),
        ("::1", "http://[::1]:80"),
    ],
)
def test_url_can_be_opened_on_this_machine(host: str, url: str) -> None:
    assert base_url(host, 80) == url
    assert base_url(host, 80, "https") == url.replace("http", "https")


@pytest.mark.parametrize(
    ("labels", "path", "field"),
    [(("relevance",), "/v1/rerank", "documents"), (("a", "b", "c"), "/v1/classify", "input")],
)
def test_a_model_that_scores_is_tried_with_what_it_does(
    labels: tuple[str, ...], path: str, field: str
) -> None:
    """Its page must not send people to the embeddings it does not have."""
    info = replace(INFO, task="score", labels=labels, dimensions=len(labels), activation="softmax")
    page = shown(replace(SERVICE, info=info), terminal=False)
    command = page.splitlines()[-1].removeprefix("try: ")
    _, _, url, *_, body = shlex.split(command)
    assert url == f"http://127.0.0.1:8123{path}"
    assert field in json.loads(body)
    assert "softmax" in page
