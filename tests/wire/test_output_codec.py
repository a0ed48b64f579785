"""Symptoms guarded: outputs that lose their kind, counts or token ids on the wire."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import SPARSE_ENTRY, OutputDtype, OutputSpec
from hotbed.core.rows import RowSet
from hotbed.tulip.testing import FAKE_INFO
from hotbed.wire import codec
from hotbed.wire import tulip_pb2 as pb
from tests.wire.test_codec import LIMITS

HYBRID = OutputSpec(
    also=(OutputSpec(kind="sparse"), OutputSpec(8, OutputDtype.INT8, True, kind="multi_vector"))
)


@pytest.mark.parametrize(
    "spec", [HYBRID, OutputSpec(kind="sparse"), OutputSpec(4, kind="tokens"), OutputSpec(4)]
)
def test_a_recipe_survives_the_wire(spec: OutputSpec) -> None:
    message = codec.encode_output(spec)
    assert codec.decode_output(pb.Output.FromString(message.SerializeToString())) == spec


def test_a_plain_recipe_has_the_bytes_it_had_before_there_were_others() -> None:
    message = codec.encode_output(OutputSpec(256, OutputDtype.INT8, True))
    assert message.SerializeToString().hex() == "08800210021801"


def test_sets_survive_the_wire() -> None:
    entries = np.array([[(3, 0.5)], [(70_000, 1.25)], [(1, 2.0)]], dtype=SPARSE_ENTRY)
    sets = [
        RowSet(np.ones((3, 32), dtype="<f4")),
        RowSet(entries, np.array([2, 0, 1], dtype=np.int32)),
        RowSet(np.arange(48, dtype="i1").reshape(6, 8), np.array([1, 2, 3], dtype=np.int32)),
    ]
    message = codec.encode_row_sets(sets, HYBRID, pb.Timings(queue_us=7), "print")
    message = pb.Rows.FromString(message.SerializeToString())
    assert (message.timings.queue_us, message.fingerprint) == (7, "print")
    back = codec.decode_row_sets(message)
    for got, sent in zip(back, sets, strict=True):
        assert got.rows.dtype == sent.rows.dtype
        np.testing.assert_array_equal(got.rows, sent.rows)
        assert (got.counts is None) == (sent.counts is None)
    assert back[1].counts is not None
    assert back[1].counts.tolist() == [2, 0, 1]
    # Whoever knows only the first output reads it as ever.
    assert codec.decode_rows(message).shape == (3, 32)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (pb.Output(kind=9), "output.kind"),
        (pb.Output(kind=pb.SPARSE, dimensions=8), "output.kind"),
        (pb.Output(kind=pb.SPARSE, normalize=pb.YES), "output.kind"),
        (pb.Output(dtype=pb.SPARSE_ENTRY), "output.dtype"),
        (pb.Output(also=[pb.Output()]), "output.also"),
        (pb.Output(also=[pb.Output(kind=1), pb.Output(kind=1)]), "output.also"),
        (pb.Output(also=[pb.Output(kind=1, also=[pb.Output(kind=2)])]), "output.also"),
        (pb.Output(also=[pb.Output(kind=1, dtype=9)]), "output.dtype"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused_by_field(message: pb.Output, param: str) -> None:
    with pytest.raises(HotbedError) as caught:
        codec.decode_output(message)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert caught.value.param == param


@pytest.mark.parametrize("counts", [[1, 1], [4, -1]])
def test_counts_that_do_not_fit_the_rows_are_the_servers_fault(counts: list[int]) -> None:
    message = pb.Rows(
        data=bytes(12), count=3, width=1, counts=np.array(counts, dtype="<i4").tobytes()
    )
    with pytest.raises(HotbedError, match=r"rows\.counts") as caught:
        codec.decode_row_sets(message)
    assert caught.value.code is ErrorCode.INTERNAL


def test_outputs_of_a_model_survive_the_wire_and_an_old_replica_has_dense_rows_alone() -> None:
    message = codec.encode_info(FAKE_INFO, LIMITS, "0.1.0")
    message = pb.InfoReply.FromString(message.SerializeToString())
    assert codec.decode_info(message)[0] == FAKE_INFO
    message.outputs.add(kind=99, width=3)  # of a later version
    assert codec.decode_info(message)[0] == FAKE_INFO
    del message.outputs[:]
    old = codec.decode_info(message)[0]
    assert old == replace(FAKE_INFO, outputs=())
    assert old.widths == {"dense": 32}
    message.outputs.add(kind=pb.TOKENS)
    with pytest.raises(HotbedError, match=r"info\.outputs"):
        codec.decode_info(message)
