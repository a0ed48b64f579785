"""A model in FP8 that is not itself any more is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.rose.batch import PackedBatch
from hotbed.rose.fp8_guard import MIN_COSINE, check_fp8, sample
from tests.rose.fake_cuda import VOCABULARY, FakeCuda, TableModel


class Noisy(TableModel):
    """A `TableModel` whose states are off by noise of so much of their size."""

    def __init__(self, noise: float) -> None:
        super().__init__()
        self._noise = noise

    def forward(self, batch: PackedBatch) -> Tensor:
        states = super().forward(batch)
        generator = torch.Generator().manual_seed(7)
        # The same for all tokens of a sequence: it does not average out.
        direction = torch.randn(states.shape[1], generator=generator)
        direction /= direction.norm()
        return states + self._noise * states.norm(dim=1, keepdim=True) * direction


def _check(noise: float) -> float:
    return check_fp8(
        Noisy(noise),
        TableModel(),
        pooling="mean",
        vocab_size=VOCABULARY,
        max_tokens=128,
        device=torch.device("cpu"),
    )


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    FakeCuda(monkeypatch)


def test_near_enough_it_serves() -> None:
    assert _check(0.0) == pytest.approx(1.0)
    assert MIN_COSINE < _check(0.1) < 0.9999


def test_too_far_off_it_is_refused_with_the_cosine() -> None:
    with pytest.raises(HotbedError, match=rf"cosine of 0\.\d+ .* the limit is {MIN_COSINE}") as e:
        _check(0.5)
    assert e.value.code is ErrorCode.INVALID_INPUT


def test_a_row_that_is_not_finite_is_refused() -> None:
    with pytest.raises(HotbedError, match="cosine of nan"):
        _check(float("nan"))


def test_the_sample_fits_the_model() -> None:
    batch = sample(vocab_size=30, max_tokens=64)
    assert batch.lengths.max() == 64
    assert batch.token_ids.max() < 30
    assert np.array_equal(batch.token_ids, sample(30, 64).token_ids), "the same every time"
