"""Right first: nothing is timed before all systems' rows agree on the same texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotbed.bench.expected import Rows, least_nearness, measure_of, nearness
from hotbed.bench.inputs import Text
from hotbed.core.errors import ErrorCode, HotbedError

_MAX_COSINE_OF_TWO_TEXTS = 0.999
_MIN_SPREAD_OF_SCORES = 0.05


@dataclass(frozen=True, slots=True)
class Agreement:
    """How near one system's rows are to others', over all check texts.

    Attributes:
        to_hotbed: smallest cosine, or for scores 1 - the largest difference.
        to_reference: the same to transformers in fp32; None if there is none.
        agrees: with Hotbed, within the limit.
    """

    to_hotbed: float
    to_reference: float | None
    agrees: bool

    def fields(self, task: str) -> dict[str, Any]:
        """For a row."""
        if task == "score":
            return {
                "score_difference_max": round(1 - self.to_hotbed, 6),
                "score_difference_reference": _rounded(self.to_reference, from_one=True),
            }
        return {
            "cosine_min": round(self.to_hotbed, 6),
            "cosine_reference": _rounded(self.to_reference),
        }


def requests_of(texts: Sequence[Text]) -> list[list[Text]]:
    """Every text alone, then all of them in one request."""
    return [[text] for text in texts] + [list(texts)]


def compare(
    task: str,
    rows: Mapping[str, Rows],
    *,
    baseline: str,
    reference: Rows | None,
    lengths: Sequence[int],
    allowed: Sequence[str] = (),
) -> dict[str, Agreement]:
    """How every system's rows agree with the baseline's, Hotbed's in its own process.

    Args:
        task: of the model.
        rows: by system and way, of `requests_of` the texts.
        baseline: key of the rows that others are held to.
        reference: of the texts alone, in fp32; None: there is none.
        lengths: of the texts, for messages.
        allowed: systems that may differ.

    Raises:
        HotbedError: INTERNAL naming the system and the text: rows that differ, do not tell texts
            apart, are not finite, or too few.
    """
    count = len(lengths)
    ours = rows[baseline]
    _check_shape(baseline, ours, 2 * count, ours.shape[-1])
    _check_tells_apart(task, ours[:count], lengths)
    if reference is not None:
        _check_shape("transformers in fp32", reference, count, ours.shape[-1])
    least = least_nearness(task)
    found = {}
    for name, theirs in rows.items():
        is_allowed = name.split(" ")[0] in allowed
        _check_shape(name, theirs, 2 * count, ours.shape[-1])
        near = nearness(task, theirs, np.concatenate((ours[:count], ours[:count])))
        to_reference = None
        if reference is not None:
            to_reference = float(nearness(task, theirs[:count], reference[:count]).min())
        agrees = bool(near.min() >= least)
        if not agrees and not is_allowed:
            worst = int(near.argmin())
            where = "alone" if worst < count else "in a batch"
            raise _differs(
                f"{name} differs from {baseline}: {measure_of(task)} {near.min():.6f} for a text"
                f" of {lengths[worst % count]} tokens, {where}; at least {least} is asked for."
                f"{_against(to_reference)} Nothing was timed; --allow-different {name.split()[0]}"
                " times it all the same"
            )
        if name == baseline and to_reference is not None and to_reference < least:
            raise _differs(
                f"{name} differs from transformers in fp32: {measure_of(task)} {to_reference:.6f};"
                f" at least {least} is asked for. Nothing was timed"
            )
        found[name] = Agreement(float(near.min()), to_reference, agrees)
    return found


def _check_shape(name: str, rows: Rows, count: int, width: int) -> None:
    if rows.shape != (count, width):
        raise _differs(
            f"{name} gave rows of shape {list(rows.shape)} for {count} texts; rows of"
            f" {width} numbers are expected. Nothing was timed"
        )
    if not np.isfinite(rows).all():
        raise _differs(f"{name} gave a row that is not finite. Nothing was timed")


def _check_tells_apart(task: str, rows: Rows, lengths: Sequence[int]) -> None:
    """Rows that ignore their text would agree with everybody's."""
    if task == "score":
        spread = float(rows.max() - rows.min())
        if spread < _MIN_SPREAD_OF_SCORES:
            raise _differs(
                f"the model's scores differ by {spread:.4f} only: nothing can be checked"
            )
        return
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    pairs = unit @ unit.T - 2 * np.eye(len(unit), dtype=np.float32)
    if pairs.max() > _MAX_COSINE_OF_TWO_TEXTS:
        first, second = divmod(int(pairs.argmax()), len(unit))
        raise _differs(
            f"two different texts, of {lengths[first]} and {lengths[second]} tokens, have a cosine"
            f" of {pairs.max():.5f}: nothing can be checked"
        )


def _against(to_reference: float | None) -> str:
    return "" if to_reference is None else f" (To transformers in fp32: {to_reference:.6f}.)"


def _differs(message: str) -> HotbedError:
    return HotbedError(ErrorCode.INTERNAL, message)


def _rounded(value: float | None, *, from_one: bool = False) -> float | None:
    if value is None:
        return None
    return round(1 - value if from_one else value, 6)
