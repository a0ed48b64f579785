"""Segment pooling on offsets that lie on the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.rose.kernels.devices import Randoms

kernel = pytest.importorskip("hotbed.rose.kernels.pool", reason="Triton is not installed")

POOLINGS = ["mean", "cls", "last"]
NUM_PAD_ROWS = 5
# Around the chunk of 64 tokens, with sequences that start inside one, end on its border, span
# several, or share it with others; slots without tokens at every place.
LENGTHS = {
    "one token": [1],
    "one sequence": [300],
    "one chunk": [64],
    "a token more": [65],
    "a token less": [63],
    "border on border": [64, 64, 128],
    "mixed": [1, 2, 63, 64, 7, 7, 130, 1, 12],
    "single tokens": [1] * 70,
    "empty slots": [0, 3, 0, 0, 61, 200, 0, 1, 0, 0],
    "all empty": [0, 0],
}


def _offsets(lengths: list[int], device: torch.device, num_pad_rows: int) -> torch.Tensor:
    ends = np.cumsum([0, *lengths, num_pad_rows])
    return torch.tensor(ends, dtype=torch.int32, device=device)


def _states(randoms: Randoms, lengths: list[int], width: int) -> torch.Tensor:
    """States with NaN in every pad row."""
    x = randoms.normal(sum(lengths) + NUM_PAD_ROWS, width)
    x[sum(lengths) :] = float("nan")
    return x


def _assert_equal(got: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    # fp32 from end to end: only the order of the sums differs.
    torch.testing.assert_close(got[0], expected[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got[1], expected[1], atol=1e-6, rtol=1e-5)
    assert torch.equal(got[2], expected[2])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("name", LENGTHS)
def test_matches_the_reference(randoms: Randoms, name: str, pooling: str) -> None:
    lengths = LENGTHS[name]
    x = _states(randoms, lengths, 200)
    cu_seqlens = _offsets(lengths, x.device, NUM_PAD_ROWS)
    got = kernel.pool(x, cu_seqlens, pooling=pooling, normalize=True)
    assert [t.dtype for t in got] == [torch.float32, torch.float32, torch.uint8]
    assert got[0].shape == (len(lengths), 200)
    assert got[2].all(), "NaN of the pad rows reached a row"
    _assert_equal(got, kernel.reference(x, cu_seqlens, pooling=pooling, normalize=True))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_without_normalising_the_default_form_is_the_pooled_row(
    randoms: Randoms, pooling: str
) -> None:
    lengths = LENGTHS["mixed"]
    x = _states(randoms, lengths, 200)
    cu_seqlens = _offsets(lengths, x.device, NUM_PAD_ROWS)
    got = kernel.pool(x, cu_seqlens, pooling=pooling, normalize=False)
    assert got[1] is got[0]
    _assert_equal(got, kernel.reference(x, cu_seqlens, pooling=pooling, normalize=False))


@pytest.mark.parametrize("width", [8, 128, 1024, 2560, 8192])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_matches_at_every_width(randoms: Randoms, width: int, pooling: str) -> None:
    lengths = [3, 0, 140]
    x = _states(randoms, lengths, width)
    cu_seqlens = _offsets(lengths, x.device, NUM_PAD_ROWS)
    got = kernel.pool(x, cu_seqlens, pooling=pooling, normalize=True)
    _assert_equal(got, kernel.reference(x, cu_seqlens, pooling=pooling, normalize=True))


def test_more_slots_than_are_searched_at_once(
    randoms: Randoms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_SLOT_BLOCK", 4)
    lengths = LENGTHS["mixed"] + LENGTHS["empty slots"]
    x = _states(randoms, lengths, 16)
    cu_seqlens = _offsets(lengths, x.device, NUM_PAD_ROWS)
    got = kernel.pool(x, cu_seqlens, pooling="mean", normalize=False)
    _assert_equal(got, kernel.reference(x, cu_seqlens, pooling="mean", normalize=False))


def test_more_partial_sums_than_are_added_at_once(
    randoms: Randoms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_FINISH_VALUES", 32)
    x = _states(randoms, [5, 500], 16)
    cu_seqlens = _offsets([5, 500], x.device, NUM_PAD_ROWS)
    got = kernel.pool(x, cu_seqlens, pooling="mean", normalize=False)
    _assert_equal(got, kernel.reference(x, cu_seqlens, pooling="mean", normalize=False))


@pytest.mark.parametrize("seed", range(5))
def test_random_batches(randoms: Randoms, seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(0, 90, 12).tolist()
    x = _states(randoms, lengths, 24)
    cu_seqlens = _offsets(lengths, x.device, NUM_PAD_ROWS)
    for pooling in POOLINGS:
        got = kernel.pool(x, cu_seqlens, pooling=pooling, normalize=True)
        _assert_equal(got, kernel.reference(x, cu_seqlens, pooling=pooling, normalize=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.filterwarnings("ignore:invalid value encountered")  # numpy's, in the interpreter
def test_a_state_that_is_not_finite_marks_its_own_row_alone(randoms: Randoms, value: float) -> None:
    """The sequences around it share its chunk."""
    lengths = [3, 4, 5]
    x = _states(randoms, lengths, 16)
    cu_seqlens = _offsets(lengths, x.device, NUM_PAD_ROWS)
    expected = kernel.pool(x, cu_seqlens, pooling="mean", normalize=True)
    x[5, 9] = value
    got = kernel.pool(x, cu_seqlens, pooling="mean", normalize=True)
    assert got[2].tolist() == [1, 0, 1]
    for got_form, expected_form in zip(got[:2], expected[:2], strict=True):
        assert torch.equal(got_form[[0, 2]], expected_form[[0, 2]])


def test_no_pad_rows(randoms: Randoms) -> None:
    x = randoms.normal(70, 16)
    cu_seqlens = _offsets([30, 40], x.device, 0)
    got = kernel.pool(x, cu_seqlens, pooling="mean", normalize=False)
    _assert_equal(got, kernel.reference(x, cu_seqlens, pooling="mean", normalize=False))


def test_normalised_rows_have_length_one_and_zero_rows_stay_zero(randoms: Randoms) -> None:
    x = randoms.normal(9, 64)
    x[4:8] = 0
    cu_seqlens = _offsets([4, 4], x.device, 1)
    pooled, default_form, finite = kernel.pool(x, cu_seqlens, pooling="mean", normalize=True)
    assert default_form[0].norm().item() == pytest.approx(1.0, abs=1e-6)
    assert default_form[1].eq(0).all()
    assert pooled[0].norm().item() < 0.9 * 8, "the pooled form is not normalised"
    assert finite.tolist() == [1, 1]


def test_a_row_depends_on_its_own_sequence_alone(randoms: Randoms) -> None:
    """Alone, or behind and before others, wherever it starts: the same bits."""
    states = randoms.normal(100, 16)
    alone = kernel.pool(states, _offsets([100], states.device, 0), pooling="mean", normalize=False)[
        0
    ]
    for before in ([10, 54], [1], [0, 63, 0, 70], [3] * 30):
        x = torch.cat((randoms.normal(sum(before), 16), states, randoms.normal(30, 16)))
        offsets = _offsets([*before, 100, 30], x.device, 0)
        together = kernel.pool(x, offsets, pooling="mean", normalize=False)[0]
        assert torch.equal(together[len(before)], alone[0]), before


def test_what_it_would_misread_is_refused(randoms: Randoms) -> None:
    x = randoms.normal(8, 16)
    cu_seqlens = _offsets([3, 4], x.device, 1)
    options = {"pooling": "mean", "normalize": False}
    with pytest.raises(ValueError, match="contiguous"):
        kernel.pool(x.T, cu_seqlens, **options)
    with pytest.raises(ValueError, match="cu_seqlens"):
        kernel.pool(x, cu_seqlens.long(), **options)
    with pytest.raises(ValueError, match="one for the pad rows"):
        kernel.pool(x, cu_seqlens[:2], **options)
    with pytest.raises(ValueError, match="'max' is unknown"):
        kernel.pool(x, cu_seqlens, **options | {"pooling": "max"})


def test_bytes_moved() -> None:
    cls = kernel.bytes_moved(512, 4, 100, pooling="cls", normalize=True)
    assert cls == 4 * 100 * 2 + 2 * 4 * 100 * 4
    mean = kernel.bytes_moved(512, 4, 100, pooling="mean", normalize=False)
    assert mean == 512 * 100 * 2 + 2 * (8 + 4) * 100 * 4 + 4 * 100 * 4


@pytest.mark.parametrize("normalize", [False, True])
def test_writes_where_it_is_told_and_nothing_else(randoms: Randoms, normalize: bool) -> None:
    lengths = [3, 0, 140]
    x = _states(randoms, lengths, 200)
    cu_seqlens = _offsets(lengths, x.device, NUM_PAD_ROWS)
    rows = torch.full((5, 200), -7.0, device=x.device)
    flags = torch.full((16,), 9, dtype=torch.uint8, device=x.device)
    out = (rows[1:4], flags[:3])
    got = kernel.pool(x, cu_seqlens, pooling="mean", normalize=normalize, out=out)
    assert got[1].data_ptr() == out[0].data_ptr()
    _assert_equal(got, kernel.reference(x, cu_seqlens, pooling="mean", normalize=normalize))
    assert rows[[0, 4]].eq(-7).all()
    assert flags[3:].eq(9).all()


def test_a_place_of_the_wrong_form_is_refused(randoms: Randoms) -> None:
    x = randoms.normal(8, 200)
    cu_seqlens = _offsets([8], x.device, 0)
    flag = torch.empty(1, dtype=torch.uint8, device=x.device)
    for out in [
        (torch.empty(2, 200, device=x.device), flag),
        (torch.empty(1, 200, device=x.device), flag.float()),
        (torch.empty(1, 200, device=x.device, dtype=torch.bfloat16), flag),
        (torch.empty(1, 400, device=x.device)[:, ::2], flag),
    ]:
        with pytest.raises(ValueError, match="out"):
            kernel.pool(x, cu_seqlens, pooling="mean", normalize=True, out=out)
