"""What models that score add to the wire: second texts' starts, raw scores, labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.wire import codec
from hotbed.wire import tulip_pb2 as pb
from tests.wire.test_codec import INFO, LIMITS, int32

SCORER = replace(
    INFO,
    task="score",
    dimensions=2,
    labels=("no", "yes"),
    activation="softmax",
    token_types=2,
)


@pytest.mark.parametrize("ids", [[[1, 2, 3]], [[1, 2, 3], [4], [5, 6]]])
def test_pair_starts_survive_the_wire(ids: list[list[int]]) -> None:
    batch = RaggedBatch.from_sequences(ids)
    starts = np.array([len(i) - 1 for i in ids], dtype=np.int32)
    batch = RaggedBatch(batch.token_ids, batch.cu_seqlens, pair_starts=starts)
    message = pb.Ragged.FromString(codec.encode_ragged(batch).SerializeToString())
    back = codec.decode_ragged(message)
    assert back.pair_starts is not None
    assert back.pair_starts.tolist() == starts.tolist()
    assert back.token_ids.tolist() == batch.token_ids.tolist()


def test_a_batch_without_pairs_costs_no_byte_more() -> None:
    message = codec.encode_ragged(RaggedBatch.from_sequences([[1], [2]]))
    assert message.pair_starts == b""
    assert codec.decode_ragged(message).pair_starts is None


@pytest.mark.parametrize("lengths", [(2,), (2, 1)])
@pytest.mark.parametrize(
    ("starts", "param"),
    [
        (b"\x00", "batch.pair_starts"),
        (int32(1, 1, 1), "batch.pair_starts"),
        (int32(3, 0), "input[0]"),
        (int32(-1, 0), "input[0]"),
    ],
)
def test_pair_starts_that_do_not_fit_are_refused(
    lengths: tuple[int, ...], starts: bytes, param: str
) -> None:
    if param == "input[0]":
        starts = starts[: 4 * len(lengths)]
    message = pb.Ragged(
        token_ids=int32(*range(sum(lengths))), lengths=int32(*lengths), pair_starts=starts
    )
    with pytest.raises(HotbedError) as caught:
        codec.decode_ragged(message)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert caught.value.param == param


@pytest.mark.parametrize("raw", [True, False])
def test_raw_scores_survive_the_wire(raw: bool) -> None:
    spec = OutputSpec(raw_scores=raw)
    message = pb.Output.FromString(codec.encode_output(spec).SerializeToString())
    assert codec.decode_output(message) == spec


def test_labels_and_activation_survive_the_wire() -> None:
    message = codec.encode_info(SCORER, LIMITS, "1")
    back, _ = codec.decode_info(pb.InfoReply.FromString(message.SerializeToString()))
    assert back == SCORER


def test_a_replica_of_an_earlier_version_embeds_without_token_types() -> None:
    message = codec.encode_info(INFO, LIMITS, "0")
    for field in ("labels", "activation", "token_types"):
        message.ClearField(field)  # type: ignore[arg-type]
    assert codec.decode_info(message)[0] == INFO


@pytest.mark.parametrize("change", [{"task": "chat"}, {"activation": "tanh"}])
def test_a_task_or_activation_nobody_knows_is_the_servers_fault(change: dict[str, str]) -> None:
    message = codec.encode_info(SCORER, LIMITS, "1")
    message.MergeFrom(pb.InfoReply(**change))  # type: ignore[arg-type]
    with pytest.raises(HotbedError) as caught:
        codec.decode_info(message)
    assert caught.value.code is ErrorCode.INTERNAL
