"""The faults of the fake engine come as often as asked for, and as named."""

from __future__ import annotations

import pytest

from hotbed.core.step import EngineDeadError
from hotbed.tulip.fake_faults import FaultRates, Faults, OutOfMemoryError


@pytest.mark.parametrize(
    ("rates", "error"),
    [
        (FaultRates(error=1), RuntimeError),
        (FaultRates(oom=1), OutOfMemoryError),
        (FaultRates(death=1), EngineDeadError),
    ],
)
def test_a_sure_fault_is_had(rates: FaultRates, error: type[Exception]) -> None:
    with pytest.raises(error):
        Faults(rates).before_step(2)


def test_an_error_spares_a_lone_sequence_so_that_halves_succeed() -> None:
    Faults(FaultRates(error=1)).before_step(1)


def test_faults_come_about_as_often_as_asked_for() -> None:
    faults, seen = Faults(FaultRates(oom=0.25), seed=1), 0
    for _ in range(1000):
        try:
            faults.before_step(1)
        except OutOfMemoryError:
            seen += 1
    assert 200 < seen < 300


def test_rates_are_read_and_wrong_ones_refused() -> None:
    assert FaultRates.parse("error=0.5,hang=0.1") == FaultRates(error=0.5, hang=0.1)
    assert FaultRates.parse("") == FaultRates()
    for text, message in {"eror=1": "must be one of", "oom=2": "0 to 1", "oom=x": "float"}.items():
        with pytest.raises(ValueError, match=message):
            FaultRates.parse(text)
