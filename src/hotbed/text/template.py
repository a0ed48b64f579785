"""The ids that a tokenizer puts before and after every text, found by asking it."""

from __future__ import annotations

from dataclasses import dataclass

from hotbed.core.errors import invalid
from hotbed.text.backend import Backend

# The empty text shows prefix and suffix joined; the others, which begin and end with different
# tokens, show where the text stands between them.
_PROBES = ("", "a", "z", "b c", "the 2 of them", "Zebra!", "(1) x y", "日本 é", "0" * 40)


@dataclass(frozen=True, slots=True)
class Template:
    """``prefix + text + suffix``: the form of every sequence that stands for one text."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()

    @property
    def num_special_tokens(self) -> int:
        return len(self.prefix) + len(self.suffix)


def find_template(backend: Backend) -> Template:
    """Template of a single sequence.

    Raises:
        HotbedError: INVALID_INPUT if what the tokenizer adds is not a fixed prefix and suffix, so
            that truncation could not know what to keep.
    """
    bare = backend.encode(_PROBES, add_special_tokens=False)
    full = backend.encode(_PROBES, add_special_tokens=True)
    fits: set[Template] | None = None
    for i in range(len(_PROBES)):
        here = _templates(bare.sequence(i).tolist(), full.sequence(i).tolist())
        fits = here if fits is None else fits & here
    if fits is None or len(fits) != 1:
        raise invalid(
            "tokenizer.json: the post_processor must put the same tokens before and after every "
            f"text; for {len(_PROBES)} probe texts no single such prefix and suffix was found"
        )
    return fits.pop()


def _templates(bare: list[int], full: list[int]) -> set[Template]:
    """All splits of `full` into prefix + `bare` + suffix."""
    return {
        Template(tuple(full[:start]), tuple(full[start + len(bare) :]))
        for start in range(len(full) - len(bare) + 1)
        if full[start : start + len(bare)] == bare
    }
