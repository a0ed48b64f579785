"""Models that score at the door and in a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.tulip.door import admit
from hotbed.tulip.testing import FAKE_INFO
from hotbed.tulip.work import Item, Part, Step
from hotbed.wire.codec import encode_output, encode_ragged

EMBEDDER = FAKE_INFO
SCORER = replace(
    FAKE_INFO, task="score", dimensions=3, labels=("a", "b", "c"), normalize=False, token_types=2
)


def pairs(ids: list[list[int]], starts: list[int] | None) -> RaggedBatch:
    batch = RaggedBatch.from_sequences(ids)
    if starts is None:
        return batch
    return RaggedBatch(
        batch.token_ids, batch.cu_seqlens, pair_starts=np.array(starts, dtype=np.int32)
    )


@pytest.mark.parametrize("spec", [OutputSpec(), OutputSpec(3), OutputSpec(normalize=False)])
def test_equal_wishes_for_scores_share_a_segment(spec: OutputSpec) -> None:
    batch = encode_ragged(pairs([[1, 2]], [1]))
    _, admitted = admit(batch, encode_output(spec), SCORER)
    assert admitted == OutputSpec(3, normalize=False)
    raw = encode_output(replace(spec, raw_scores=True))
    assert admit(batch, raw, SCORER)[1] == OutputSpec(3, normalize=False, raw_scores=True)


@pytest.mark.parametrize(
    ("info", "spec", "param"),
    [
        (SCORER, OutputSpec(2), "output.dimensions"),
        (SCORER, OutputSpec(4), "output.dimensions"),
        (SCORER, OutputSpec(dtype=OutputDtype.INT8), "output.dtype"),
        (SCORER, OutputSpec(normalize=True), "output.normalize"),
        (EMBEDDER, OutputSpec(raw_scores=True), "output.raw_scores"),
    ],
)
def test_wishes_that_do_not_suit_the_task_are_refused(
    info: object, spec: OutputSpec, param: str
) -> None:
    with pytest.raises(HotbedError) as caught:
        admit(encode_ragged(pairs([[1]], None)), encode_output(spec), info)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert caught.value.param == param


def test_pairs_for_a_model_with_one_token_type_are_refused() -> None:
    message = encode_ragged(pairs([[1, 2]], [1]))
    with pytest.raises(HotbedError) as caught:
        admit(message, encode_output(OutputSpec()), replace(SCORER, token_types=1))
    assert caught.value.param == "batch.pair_starts"


def test_a_step_keeps_second_texts_with_their_sequences() -> None:
    """Items with pairs, cut and whole, beside one without: its texts are first ones."""
    one = Item(pairs([[1, 2, 3], [4, 5], [6, 7]], [1, 2, 0]), OutputSpec(), on_answer=print)
    raw = OutputSpec(raw_scores=True)
    two = Item(pairs([[8, 9]], None), raw, on_answer=print)
    three = Item(pairs([[10, 11, 12]], [2]), OutputSpec(), on_answer=print)
    step = Step.of([Part.of(one, 1, 3), Part.of(two, 0, 1), Part.of(three, 0, 1)])
    batch, segments = step.build()
    assert batch.pair_starts is not None
    found = {
        tuple(batch.sequence(i).tolist()): int(batch.pair_starts[i])
        for i in range(batch.num_sequences)
    }
    assert found == {(4, 5): 2, (6, 7): 0, (8, 9): 2, (10, 11, 12): 2}
    assert [s.spec.raw_scores for s in segments] == [False, True]


def test_a_step_of_plain_items_has_no_pair_starts() -> None:
    item = Item(pairs([[1], [2]], None), OutputSpec(), on_answer=print)
    assert Step.of([Part.of(item, 0, 2)]).build()[0].pair_starts is None
