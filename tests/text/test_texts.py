from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotbed.core.errors import HotbedError
from hotbed.core.ragged import RaggedBatch
from hotbed.text.texts import checked_texts, refuse_blank, without_surrogates

BLANK = np.array([2, 3], dtype=np.int32)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
def test_text_without_surrogates_is_left_alone(text: str) -> None:
    assert without_surrogates(text) == text
    if not text.isspace():
        assert checked_texts([text], max_chars=1000) == [text]


@given(st.text(alphabet=st.characters(min_codepoint=0xD700, max_codepoint=0xE0FF)))
def test_any_surrogates_become_text_that_utf8_can_hold(text: str) -> None:
    cleaned = without_surrogates(text)
    cleaned.encode()
    num_units = len(cleaned.encode("utf-16-le")) // 2
    assert num_units == len(text)  # a pair joins, a lone one is replaced, nothing is swallowed


@pytest.mark.parametrize("sequence", [[], [2, 3]])
def test_sequence_without_a_token_of_text_never_reaches_the_engine(sequence: list[int]) -> None:
    batch = RaggedBatch.from_sequences([[2, 9, 3], sequence])
    with pytest.raises(HotbedError) as caught:
        refuse_blank(batch, batch.lengths, BLANK)
    assert caught.value.param == "input[1]"


def test_text_as_long_as_the_blank_passes_if_it_is_another() -> None:
    batch = RaggedBatch.from_sequences([[2, 9], [2, 3, 9]])
    refuse_blank(batch, batch.lengths, BLANK)
