"""Symptoms guarded: a test that holds a bound of time runs beside others, or waits for ever."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

import pytest

from tests.support.turns import turn


def is_held(file: Path) -> bool:
    """Whether somebody has it, for itself or with others."""
    with file.open("w") as probe:
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_who_is_alone_waits_for_the_others_and_is_not_overtaken(tmp_path: Path) -> None:
    order: list[str] = []

    def take(name: str, *, alone: bool) -> None:
        with turn(tmp_path, alone=alone):
            order.append(name)

    alone = threading.Thread(target=take, args=("alone",), kwargs={"alone": True})
    late = threading.Thread(target=take, args=("late",), kwargs={"alone": False})
    with turn(tmp_path, alone=False):
        alone.start()
        while not is_held(tmp_path / "next"):  # until it waits
            time.sleep(0.001)
        late.start()
        assert order == []
    alone.join()
    late.join()
    assert order == ["alone", "late"]


def test_others_run_side_by_side_and_nobody_beside_who_is_alone(tmp_path: Path) -> None:
    with turn(tmp_path, alone=False), turn(tmp_path, alone=False):
        assert not is_held(tmp_path / "next")
    with turn(tmp_path, alone=True):
        assert is_held(tmp_path / "running")
    assert not is_held(tmp_path / "running")


def test_a_test_that_fails_gives_its_turn_back(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), turn(tmp_path, alone=True):
        _ = 1 / 0
    assert not is_held(tmp_path / "running")
