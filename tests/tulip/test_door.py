"""Symptoms guarded: ids, lengths or dimensions that crash the engine or give rows of junk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.tulip import faults
from hotbed.tulip.door import admit, hand_out, tenant_of
from hotbed.tulip.testing import FAKE_INFO
from hotbed.tulip.work import Answer, Item
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.codec import decode_rows, encode_output, encode_ragged
from tests.core.test_ragged import with_spans

INFO = replace(FAKE_INFO, dimensions=20, max_tokens=8, vocab_size=100, normalize=True)


def admitted(
    ids: Sequence[Sequence[int]], spec: OutputSpec | None = None
) -> tuple[RaggedBatch, OutputSpec]:
    batch = encode_ragged(RaggedBatch.from_sequences(ids))
    return admit(batch, encode_output(spec or OutputSpec()), INFO)


def refusal(ids: Sequence[Sequence[int]], spec: OutputSpec | None = None) -> HotbedError:
    with pytest.raises(HotbedError) as caught:
        admitted(ids, spec)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    return caught.value


def test_a_tenants_name_has_a_bound() -> None:
    assert tenant_of(b"x" * 64) == b"x" * 64
    assert tenant_of(b"") == b""
    with pytest.raises(HotbedError, match="65 bytes, the limit is 64") as caught:
        tenant_of(b"x" * 65)
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_INPUT, "tenant")


def test_ids_and_lengths_at_their_limits_pass() -> None:
    batch, _ = admitted([[0, 99], [99] * 8])
    assert batch.lengths.tolist() == [2, 8]
    admitted([[99] * 8])


@pytest.mark.parametrize("bad", [100, -1, 2**31 - 1, -(2**31)])
def test_an_id_outside_the_vocabulary_is_named_by_sequence_and_position(bad: int) -> None:
    error = refusal([[1, 2], [3], [4, bad], [bad]])
    assert error.param == "input[2]"
    assert f"token id {bad} at position 1 of sequence 2" in error.message
    assert "0 to 99" in error.message
    assert refusal([[bad]]).param == "input[0]"


def test_a_sequence_too_long_is_named_with_both_numbers() -> None:
    error = refusal([[1] * 8, [1] * 9, [1] * 10])
    assert error.param == "input[1]"
    assert "9 tokens" in error.message
    assert "takes 8" in error.message
    assert refusal([[1] * 9]).param == "input[0]"


@pytest.mark.parametrize("dimensions", [0, 20])
def test_no_dimensions_and_the_native_number_are_the_same_recipe(dimensions: int) -> None:
    _, spec = admitted([[1]], OutputSpec(dimensions))
    assert spec == OutputSpec(20, OutputDtype.FLOAT32, normalize=True)


@pytest.mark.parametrize(("asked", "given"), [(None, True), (True, True), (False, False)])
def test_the_models_normalisation_is_the_default(asked: bool | None, given: bool) -> None:
    assert admitted([[1]], OutputSpec(normalize=asked))[1].normalize is given


@pytest.mark.parametrize("dimensions", [21, 100_000])
def test_more_dimensions_than_the_model_has_are_refused(dimensions: int) -> None:
    error = refusal([[1]], OutputSpec(dimensions))
    assert error.param == "output.dimensions"
    assert "1 to 20" in error.message


def test_bits_need_dimensions_that_divide_by_8_also_when_they_are_the_models_own() -> None:
    error = refusal([[1]], OutputSpec(0, OutputDtype.UBINARY))
    assert error.param == "output.dimensions"
    assert "20" in error.message
    _, spec = admitted([[1]], OutputSpec(16, OutputDtype.BINARY))
    assert spec.dimensions == 16


def answer(result: object) -> Answer:
    batch, spec = admitted([[1], [2]])
    item = Item(batch, spec, on_answer=lambda _: None)
    return Answer(item, result, queue_s=0.0000011, device_s=0.002, total_s=1e9)  # type: ignore[arg-type]


def test_rows_and_timings_go_out() -> None:
    message = pb.Rows()
    rows = np.arange(40, dtype="<f4").reshape(2, 20)
    hand_out(answer(rows), "abc", into=message)
    np.testing.assert_array_equal(decode_rows(message), rows)
    assert message.fingerprint == "abc"
    assert (message.timings.queue_us, message.timings.device_us) == (1, 2000)
    assert message.timings.total_us == 2**32 - 1  # a day and more: does not wrap round


def test_an_error_does_not_go_out_as_rows() -> None:
    with pytest.raises(HotbedError, match="cancelled"):
        hand_out(answer(faults.cancelled()), "abc", into=pb.Rows())


def test_spans_pass_for_a_model_that_pools_by_mean_and_for_no_other() -> None:
    """Mean rows of chunks beside cls rows of texts would look right and compare wrongly."""
    message = encode_ragged(with_spans(([1, 2, 3], [(0, 1), (2, 3)])))
    batch, _ = admit(message, encode_output(OutputSpec()), INFO)
    assert batch.num_rows == 2
    with pytest.raises(HotbedError, match="pools by 'cls'"):
        admit(message, encode_output(OutputSpec()), replace(INFO, pooling="cls"))
