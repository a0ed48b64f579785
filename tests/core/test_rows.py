"""Symptoms guarded: rows of one text that end up with another's."""

from __future__ import annotations

import numpy as np
import pytest

from hotbed.core.errors import HotbedError
from hotbed.core.output import SPARSE_ENTRY, OutputDtype, OutputSpec
from hotbed.core.rows import RowSet
from hotbed.tulip.testing import FAKE_INFO

ROWS = np.arange(12.0).reshape(6, 2)


def test_rows_of_a_set_follow_their_counts() -> None:
    made = RowSet(ROWS, np.array([2, 0, 3, 1], dtype=np.int32))
    assert [len(part) for part in made.split()] == [2, 0, 3, 1]
    assert made.split()[2].tolist() == ROWS[2:5].tolist()
    part = made.slice(1, 3)
    assert part.counts is not None
    assert part.counts.tolist() == [0, 3]
    assert part.rows.tolist() == ROWS[2:5].tolist()
    again = RowSet.concatenate([made.slice(0, 1), part, made.slice(3, 4)])
    assert again.rows.tolist() == ROWS.tolist()
    assert again.counts is not None
    assert again.counts.tolist() == [2, 0, 3, 1]


def test_a_set_without_counts_has_a_row_each() -> None:
    made = RowSet(ROWS)
    assert made.num_sequences == 6
    assert [part.tolist() for part in made.slice(4, 6).split()] == [[[8, 9]], [[10, 11]]]
    assert RowSet.concatenate([made.slice(0, 4), made.slice(4, 6)]).rows.tolist() == ROWS.tolist()


def test_each_names_every_output_once_the_first_one_first() -> None:
    spec = OutputSpec(8, kind="tokens", also=(OutputSpec(kind="sparse"), OutputSpec()))
    assert [one.kind for one in spec.each()] == ["tokens", "sparse", "dense"]
    assert spec.each()[0] == OutputSpec(8, kind="tokens")
    assert OutputSpec(8).each() == (OutputSpec(8),)
    assert OutputSpec(8).is_plain
    assert not spec.is_plain
    assert not OutputSpec(also=(OutputSpec(kind="sparse"),)).is_plain


def test_widths_of_rows_are_those_of_their_output() -> None:
    assert FAKE_INFO.row_width(OutputSpec()) == 32
    assert FAKE_INFO.row_width(OutputSpec(kind="multi_vector")) == 16
    assert FAKE_INFO.row_width(OutputSpec(kind="tokens", dtype=OutputDtype.UBINARY)) == 4
    assert FAKE_INFO.row_width(OutputSpec(kind="sparse")) == 1
    assert OutputSpec(kind="sparse").row_dtype is SPARSE_ENTRY


def test_an_output_that_the_model_has_not_is_refused_with_those_it_has() -> None:
    FAKE_INFO.check_output("sparse")
    with pytest.raises(HotbedError, match=r"no sparse output; its outputs are: dense$"):
        type(FAKE_INFO)(**{**_fields(), "outputs": ()}).check_output("sparse")
    with pytest.raises(HotbedError, match="the model scores; it has no tokens output"):
        type(FAKE_INFO)(**{**_fields(), "task": "score"}).check_output("tokens")


def _fields() -> dict[str, object]:
    return {name: getattr(FAKE_INFO, name) for name in FAKE_INFO.__slots__}
