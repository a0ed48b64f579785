"""The thread that works ahead: order, errors, an end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from hotbed.bulk.ahead import ahead


def test_items_keep_their_order() -> None:
    assert list(ahead(iter(range(100)), depth=3, name="t")) == list(range(100))


def test_what_the_iterator_raises_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    running = ahead(items(), depth=3, name="t")
    assert next(running) == 1
    with pytest.raises(ValueError, match="no more"):
        next(running)


def test_no_more_is_made_than_may_wait_and_the_thread_ends_with_its_consumer() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for i in range(1000):
            made.append(i)
            yield i

    running = ahead(items(), depth=2, name="bounded")
    assert next(running) == 0
    running.close()
    assert len(made) <= 6
    assert "bounded" not in {thread.name for thread in threading.enumerate()}
