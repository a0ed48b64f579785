"""Rows that agree, and every way in which they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hotbed.bench.check import compare, requests_of
from hotbed.bench.inputs import Text
from hotbed.core.errors import HotbedError

LENGTHS = (8, 8, 16)
OURS = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
TWICE = np.concatenate((OURS, OURS))


def check(task: str = "embed", **options: Any) -> Any:
    rows = {"hotbed offline": options.pop("ours", TWICE), "peer http": options.pop("theirs", TWICE)}
    defaults = {"baseline": "hotbed offline", "reference": None, "lengths": LENGTHS}
    return compare(task, rows, **(defaults | options))


def turned(rows: Any, cosine: float) -> Any:
    """Each row turned so far that its cosine to what it was is `cosine`."""
    other = np.roll(rows, 1, axis=1)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    other -= (other * unit).sum(1, keepdims=True) * unit
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    return (cosine * unit + np.sqrt(1 - cosine**2) * other).astype(np.float32)


def test_every_text_is_asked_for_alone_and_then_all_together() -> None:
    texts = [Text("a", (1,)), Text("b", (2,))]
    assert requests_of(texts) == [[texts[0]], [texts[1]], texts]


@pytest.mark.parametrize(("cosine", "passes"), [(0.99901, True), (0.99899, False)])
def test_a_cosine_under_0_999_is_refused(cosine: float, passes: bool) -> None:
    theirs = turned(TWICE, cosine)
    if passes:
        assert check(theirs=theirs)["peer http"].to_hotbed == pytest.approx(cosine, abs=1e-6)
        return
    with pytest.raises(
        HotbedError, match=r"peer http differs from hotbed offline: cosine 0\.99899"
    ):
        check(theirs=theirs)


def test_length_of_rows_does_not_matter() -> None:
    assert check(theirs=TWICE * 7)["peer http"].agrees


def test_one_bad_text_in_a_batch_is_found_and_named() -> None:
    theirs = TWICE.copy()
    theirs[5] = OURS[0]
    with pytest.raises(HotbedError, match="of 16 tokens, in a batch"):
        check(theirs=theirs)


def test_hotbed_that_is_far_from_the_reference_ends_the_run() -> None:
    with pytest.raises(HotbedError, match="hotbed offline differs from transformers in fp32"):
        check(reference=turned(OURS, 0.998))
    assert check(reference=turned(OURS, 0.9995))["peer http"].to_reference == pytest.approx(0.9995)


def test_an_allowed_system_is_marked() -> None:
    found = check(theirs=turned(TWICE, 0.5), allowed=("peer",))
    assert not found["peer http"].agrees
    assert found["hotbed offline"].agrees


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (TWICE[:5], r"shape \[5, 64\] for 6 texts"),
        (TWICE[:, :32], r"rows of 64 numbers are expected"),
        (TWICE * np.nan, "not finite"),
    ],
)
def test_rows_that_are_missing_short_or_not_finite_are_refused_even_if_allowed(
    theirs: Any, message: str
) -> None:
    with pytest.raises(HotbedError, match=message):
        check(theirs=theirs, allowed=("peer",))


def test_a_model_that_ignores_its_text_proves_nothing() -> None:
    same = np.ones((6, 64), dtype=np.float32)
    with pytest.raises(HotbedError, match="nothing can be checked"):
        check(ours=same, theirs=same)


SCORES = np.array([[0.1], [0.5], [0.9]] * 2, dtype=np.float32)


@pytest.mark.parametrize(("difference", "passes"), [(0.019, True), (0.021, False)])
def test_scores_may_differ_by_0_02(difference: float, passes: bool) -> None:
    theirs = SCORES + np.float32(difference)
    if passes:
        fields = check("score", ours=SCORES, theirs=theirs)["peer http"].fields("score")
        assert fields["score_difference_max"] == pytest.approx(difference, abs=1e-6)
        return
    with pytest.raises(HotbedError, match="1 - difference of scores"):
        check("score", ours=SCORES, theirs=theirs)


def test_scores_that_are_all_alike_prove_nothing() -> None:
    with pytest.raises(HotbedError, match=r"scores differ by 0\.0000 only"):
        check("score", ours=SCORES * 0, theirs=SCORES * 0)
