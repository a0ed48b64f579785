"""Runs an iterator on a thread of its own, a bounded number of items ahead of who consumes it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar, cast

T = TypeVar("T")


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Iterator[T], *, depth: int, name: str) -> Generator[T, None, None]:
    """The items in order; what the iterator raises is raised here, after the items before it.

    When the consumer stops early, the thread ends after the item that it is at.

    Args:
        items: used on the thread only.
        depth: items that may wait.
        name: of the thread.
    """
    made: queue.Queue[T | _End] = queue.Queue(depth)
    stopped = threading.Event()

    def produce() -> None:
        end = _End(None)
        try:
            for item in items:
                made.put(item)
                if stopped.is_set():
                    break
        except BaseException as error:
            end = _End(error)
        finally:
            made.put(end)

    thread = threading.Thread(target=produce, name=name, daemon=True)
    thread.start()
    item: T | _End | None = None
    try:
        while not isinstance(item := made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        while not isinstance(item, _End):
            item = cast("T | _End", made.get())
        thread.join()
