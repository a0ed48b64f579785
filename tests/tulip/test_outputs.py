"""Outputs whose rows vary in number, through a whole Tulip: each item gets just its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import StepResult
from hotbed.tulip.door import admit
from hotbed.tulip.metrics import Metrics
from hotbed.tulip.scheduler import Scheduler
from hotbed.tulip.testing import FAKE_INFO, expected_sets
from hotbed.tulip.work import Answer, Item, Part, Step
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.codec import decode_row_sets, encode_output, encode_ragged
from hotbed.wire.limits import Limits
from tests.core.test_ragged import with_spans
from tests.tulip.conftest import Running, StartTulip

SPARSE = OutputSpec(kind="sparse")
TOKENS = OutputSpec(kind="tokens")
SPECS = [
    OutputSpec(),
    SPARSE,
    TOKENS,
    OutputSpec(8, OutputDtype.INT8, kind="multi_vector"),
    OutputSpec(also=(SPARSE, OutputSpec(kind="multi_vector"))),
]
IDS = [[1, 2, 2], [3], [4, 5, 6, 5, 4, 3, 2], [7, 7]]


def assert_sets(rows: pb.Rows, ids: list[list[int]], spec: OutputSpec) -> None:
    got = decode_row_sets(rows)
    for one, part in zip(got, spec.each(), strict=True):
        expected = expected_sets(ids, part, info=FAKE_INFO)
        np.testing.assert_array_equal(one.rows, expected.rows)
        if expected.counts is None:
            assert one.counts is None
        else:
            assert one.counts is not None
            assert one.counts.tolist() == expected.counts.tolist()


async def test_items_of_all_kinds_share_steps_and_each_gets_its_own(tulip: Running) -> None:
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({0: [[9]]})  # holds the engine, so that the others gather
    await tulip.begun(1)
    for tag in range(1, 31):
        spec = SPECS[tag % len(SPECS)]
        await stream.send({tag: IDS[tag % 3 :]}, spec=spec)
    tulip.engine.release()
    for tag, result in (await stream.receive(31)).items():
        ids, spec = stream.sent[tag]
        assert_sets(result.rows, [list(one) for one in ids], spec)
    assert len(tulip.engine.steps) - tulip.steps_before < 31


def test_outputs_are_counted_by_kind() -> None:
    metrics = Metrics()
    item = Item(RaggedBatch.from_sequences(IDS), SPECS[-1], on_answer=print)
    sets = [expected_sets(IDS, spec, info=FAKE_INFO) for spec in SPECS[-1].each()]
    metrics.answered(Answer(item, sets))
    dense = Item(RaggedBatch.from_sequences(IDS), OutputSpec(), on_answer=print)
    metrics.answered(Answer(dense, np.zeros((4, 32), np.float32)))
    counted = {
        kind: metrics.registry.get_sample_value("hotbed_tulip_outputs_total", {"kind": kind})
        for kind in ("dense", "sparse", "multi_vector", "tokens")
    }
    assert counted == {"dense": 1, "sparse": 1, "multi_vector": 1, "tokens": 0}


@pytest.mark.parametrize("spec", SPECS[1:])
async def test_an_item_over_several_steps_comes_together_in_order(
    start_tulip: StartTulip, spec: OutputSpec
) -> None:
    tulip = await start_tulip(max_step_tokens=8)
    request = pb.EmbedRequest(batch=encode_ragged(RaggedBatch.from_sequences(IDS * 5)))
    encode_output(spec, into=request.output)
    reply = await tulip.stub.Embed(request, timeout=20)
    assert_sets(reply.rows, IDS * 5, spec)
    assert len(tulip.engine.steps) - tulip.steps_before > 5


async def test_sequences_that_are_not_finite_do_not_take_others_with_them(tulip: Running) -> None:
    tulip.engine.non_finite.add(666)
    stream = tulip.open_stream()
    await stream.send({1: [[1, 2], [666, 2]], 2: [[5, 6, 7]]}, spec=SPECS[-1])
    results = await stream.receive(2)
    assert results[1].error.code == ErrorCode.INTERNAL.value
    assert results[1].error.param == "input[1]"
    assert_sets(results[2].rows, [[5, 6, 7]], SPECS[-1])


def test_where_nan_leaks_the_finite_ones_are_kept_and_the_others_run_again_alone() -> None:
    scheduler = Scheduler(Limits(100, 100, 1000, 100, 1000, 10), isolates_nan=False)
    scheduler.submit(Item(RaggedBatch.from_sequences(IDS), SPECS[-1], on_answer=print), 0.0)
    first = scheduler.next_step(0.0)
    assert first is not None
    scheduler.complete(first, _result(first, finite=[True, False, True, False]), 1.0)
    assert not scheduler.take_answers()
    for now, sequence in ((2.0, IDS[1]), (3.0, IDS[3])):
        again = scheduler.next_step(now)
        assert again is not None
        assert again.build()[0].token_ids.tolist() == sequence
        scheduler.complete(again, _result(again, finite=[True]), now)
    (answer,) = scheduler.take_answers()
    assert isinstance(answer.result, list)
    for got, spec in zip(answer.result, SPECS[-1].each(), strict=True):
        expected = expected_sets(IDS, spec, info=FAKE_INFO)
        np.testing.assert_array_equal(got.rows, expected.rows)


def _result(step: Step, *, finite: list[bool]) -> StepResult:
    batch, segments = step.build()
    sets = [expected_sets(batch, s.spec, info=FAKE_INFO) for s in segments]
    return StepResult([s.rows for s in sets], np.array(finite), [s.counts for s in sets])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (replace(TOKENS, raw_scores=True), "raw_scores"),
        (replace(TOKENS, dimensions=33), "the tokens output has 1 to 32"),
        (OutputSpec(24, kind="multi_vector"), "the multi_vector output has 1 to 16"),
        (OutputSpec(12, OutputDtype.FLOAT32, also=(TOKENS,)), None),
        (OutputSpec(dtype=OutputDtype.UBINARY, kind="multi_vector"), None),
    ],
)
def test_wishes_that_the_output_cannot_fulfil_are_refused(
    spec: OutputSpec, message: str | None
) -> None:
    batch = encode_ragged(RaggedBatch.from_sequences(IDS))
    if message is None:
        assert admit(batch, encode_output(spec), FAKE_INFO)[1] == spec
        return
    with pytest.raises(HotbedError, match=message) as caught:
        admit(batch, encode_output(spec), FAKE_INFO)
    assert caught.value.code is ErrorCode.INVALID_INPUT


def test_an_output_that_the_model_has_not_is_refused_at_the_door() -> None:
    batch = encode_ragged(RaggedBatch.from_sequences(IDS))
    dense_only = replace(FAKE_INFO, outputs=())
    sparse_only = replace(FAKE_INFO, outputs=(("sparse", 30_000),))
    for info, spec in ((dense_only, SPECS[-1]), (sparse_only, OutputSpec())):
        with pytest.raises(HotbedError, match=r"its outputs are: \w+$"):
            admit(batch, encode_output(spec), info)


def test_spans_have_dense_rows_only() -> None:
    batch = with_spans(([1, 2, 3], [(0, 2), (2, 3)]))
    with pytest.raises(HotbedError, match="only dense outputs have rows of spans"):
        admit(encode_ragged(batch), encode_output(TOKENS), FAKE_INFO)


def test_an_answer_that_fits_no_message_is_refused_before_it_is_computed() -> None:
    batch = RaggedBatch.from_sequences([[1]] * 300)
    with pytest.raises(HotbedError, match=r"72000000 bytes of outputs, the limit is") as caught:
        admit(encode_ragged(batch), encode_output(SPARSE), FAKE_INFO)
    assert caught.value.code is ErrorCode.TOO_LARGE
    wide = replace(FAKE_INFO, outputs=(("tokens", 4096),))
    long = RaggedBatch.from_sequences([[1] * 512] * 8)
    with pytest.raises(HotbedError, match="bytes of outputs"):
        admit(encode_ragged(long), encode_output(TOKENS), wide)
    half = OutputSpec(dtype=OutputDtype.INT8, kind="tokens")
    assert admit(encode_ragged(long), encode_output(half), wide)[1] == half


def test_an_engine_that_forgets_the_counts_is_found_out() -> None:
    item = Item(RaggedBatch.from_sequences([[1], [2]]), TOKENS, on_answer=lambda _: None)
    step = Step.of([Part.of(item, 0, 2)])
    rows, finite = np.zeros((3, 32), dtype="<f4"), np.ones(2, bool)
    step.check(StepResult([rows], finite, [np.array([1, 2], dtype=np.int32)]), FAKE_INFO)
    for counts in (None, [None], [np.array([3], dtype=np.int32)], [np.array([1, 1], np.int32)]):
        with pytest.raises(RuntimeError, match="this is a bug"):
            step.check(StepResult([rows], finite, counts), FAKE_INFO)  # type: ignore[arg-type]


def test_a_dense_output_beside_others_keeps_its_row_a_sequence() -> None:
    limits = Limits(100, 100, 1000, 100, 1000, 10)
    scheduler = Scheduler(limits)
    answers: list[Answer] = []
    batch = RaggedBatch.from_sequences(IDS)
    scheduler.submit(Item(batch, SPECS[-1], on_answer=answers.append), 0.0)
    step = scheduler.next_step(0.0)
    assert step is not None
    _, segments = step.build()
    assert [(s.start, s.stop, s.spec.kind) for s in segments] == [
        (0, 4, "dense"), (0, 4, "sparse"), (0, 4, "multi_vector"),
    ]  # fmt: skip
    result = _result(step, finite=[True] * 4)
    scheduler.complete(step, result, 1.0)
    (answer,) = scheduler.take_answers()
    assert isinstance(answer.result, list)
    assert answer.result[0].counts is None
    np.testing.assert_array_equal(answer.result[0].rows, result.rows[0])
