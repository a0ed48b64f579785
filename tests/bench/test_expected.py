"""Timed rows are held to what they must be, and what is wrong is said."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hotbed.bench.expected import Expected

ROWS = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
SIZES = [2, 2, 1]


def expected(**fields: Any) -> Expected:
    made = Expected.of("embed", ROWS, SIZES, **fields)
    return Expected.from_json(json.loads(json.dumps(made.as_json())))


def answers(*replaced: tuple[int, Any]) -> list[tuple[int, Any]]:
    """Of seven requests, in turn; some replaced."""
    parts = np.split(ROWS, np.cumsum(SIZES)[:-1])
    found = {i: parts[i % len(parts)] for i in range(7)}
    return list((found | dict(replaced)).items())


def test_right_rows_pass_and_survive_the_message() -> None:
    expected().check(answers())
    near = ROWS[:2] + 0.02 * np.roll(ROWS[:2], 1, axis=1)  # cosine about 0.9998
    expected().check(answers((3, near)))


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ((0, ROWS[:1]), r"rows of shape \[1, 64\] came back, \[2, 64\] are right"),
        ((6, ROWS[:2, :32]), r"rows of shape \[2, 32\] came back"),
        ((3, ROWS[:2] * np.array([[1], [np.nan]])), "row 1 of 2 is not finite"),
        ((3, ROWS[1::-1]), "row 0 of 2: cosine .* it is row 1 of request 0"),
        ((4, ROWS[:2]), "row . of 2: cosine .* it is row . of request 0"),
        ((2, -ROWS[4:]), "row 0 of 1: cosine -1.000000 to the right one$"),
        ((2, ROWS[4:] * 0), "row 0 of 1: cosine 0.000000"),
    ],
)
def test_what_is_wrong_is_named(replaced: tuple[int, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^1 of 7 timed answers are wrong; {message}"):
        expected().check(answers(replaced))


def test_a_system_that_may_differ_is_still_held_to_finite_rows_of_the_right_number() -> None:
    expected(is_near=False).check(answers((3, -ROWS[:2])))
    with pytest.raises(ValueError, match="not finite"):
        expected(is_near=False).check(answers((3, ROWS[:2] * np.nan)))
    with pytest.raises(ValueError, match="came back"):
        expected(is_near=False).check(answers((3, ROWS[:1])))


@pytest.mark.parametrize(("difference", "passes"), [(0.039, True), (0.041, False)])
def test_scores_have_twice_the_room_of_the_check(difference: float, passes: bool) -> None:
    scores = np.array([[0.2], [0.7]], dtype=np.float32)
    made = Expected.of("score", scores, [1, 1])
    given = [(0, scores[:1]), (1, scores[1:] + np.float32(difference))]
    if passes:
        made.check(given)
        return
    with pytest.raises(ValueError, match=r"1 - difference of scores 0\.959"):
        made.check(given)
