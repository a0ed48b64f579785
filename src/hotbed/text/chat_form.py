"""What a chat template of a reranker is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChatForm:
    """``prefix + head + " " + document + suffix``.

    Each piece is tokenised by itself, as the authors' code does; the head's last one together with
    the document, divided where it alone would end.

    Attributes:
        prefix: pieces before the head.
        suffix: pieces after the document.
        default_instruction: where neither the request nor the files have one; may be empty.
        head: the head's pieces, of an instruction and a query.
    """

    prefix: tuple[str, ...]
    suffix: tuple[str, ...]
    default_instruction: str
    head: Callable[[str, str], tuple[str, ...]]
