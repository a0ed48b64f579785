"""What the bench asks of a system that runs in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Item:
    """One input: a text and its token ids in the model's vocabulary, special tokens included."""

    text: str
    ids: list[int]


@dataclass(frozen=True, slots=True)
class Spec:
    """What a system is to load.

    Attributes:
        folder: of the model.
        task: ``embed`` or ``score``.
        device: ``cpu`` or ``cuda``.
        max_tokens: longest input.
        num_threads: on a CPU; None: the system's own default.
        cache: folder for what the system makes of the model.
        reference: load in fp32 and with the plainest code: the rows that others are held to.
        options: of this system, as the user gave them.
    """

    folder: str
    task: str
    device: str
    max_tokens: int
    num_threads: int | None
    cache: str
    reference: bool
    options: Mapping[str, str]


class Adapter(Protocol):
    """A loaded system. Only `embed` is timed."""

    settings: str
    """How it runs, in words."""

    def prepare(self, items: Sequence[Item]) -> Any:
        """A request in the system's own form."""
        ...

    def embed(self, prepared: Any) -> Any:
        """Compute it; returns when the rows are on the host, in the system's own form, which has a
        length: the number of rows.
        """
        ...

    def rows(self, result: Any) -> NDArray[Any]:
        """[sequences, dimensions] of what `embed` returned; [sequences, 1] of scores."""
        ...
