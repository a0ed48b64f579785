"""What follows from measured step times, and where it is kept."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest
import torch

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.cache_folder import default_cache_folder
from hotbed.rose import calibrate as calibrate_module
from hotbed.rose.calibrate import calibrate
from hotbed.rose.calibration import (
    Calibration,
    StepTime,
    calibration_file,
    crossover,
    knee,
    load_calibration,
    save_calibration,
)
from hotbed.rose.engine import RoseEngine
from hotbed.tulip.__main__ import load_rose
from hotbed.tulip.settings import TulipSettings

CPU = torch.device("cpu")


def test_the_knee_is_the_smallest_size_near_the_best_rate() -> None:
    rates = {64: 10.0, 512: 94.0, 1024: 96.0, 4096: 100.0, 8192: 97.0}
    times = [StepTime(n, eager_ms=n / rate) for n, rate in rates.items()]
    assert knee(times) == 1024
    assert knee(times[:1]) == 64


def test_the_knee_counts_the_faster_of_eager_and_replayed() -> None:
    times = [StepTime(64, eager_ms=8.0, replayed_ms=1.0), StepTime(512, 8.0, 8.0)]
    assert knee(times) == 64


@pytest.mark.parametrize(
    ("eager", "expected"),
    [
        ([3.0, 2.0, 1.01, 1.0], 128),
        ([3.0, 1.01, 1.5, 1.0], 256),  # the last one that gains counts
        ([1.0, 1.0, 1.0, 1.0], 0),
        ([2.0, 2.0, 2.0, 2.0], 512),
    ],
)
def test_the_crossover_is_the_last_size_at_which_a_graph_gains(
    eager: list[float], expected: int
) -> None:
    sizes = (64, 128, 256, 512)
    times = [StepTime(n, e, 1.0) for n, e in zip(sizes, eager, strict=True)]
    assert crossover(times) == expected


def test_without_graphs_there_is_no_crossover() -> None:
    assert crossover([StepTime(64, 1.0)]) is None


SOME = Calibration(96, None, (StepTime(96, 1.0), StepTime(128, 2.0)), "a CPU", "2026-11-30")


def test_what_is_stored_is_found_again_and_leaves_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "x.json"
    assert load_calibration(file) is None
    save_calibration(file, SOME)
    save_calibration(file, SOME)
    assert load_calibration(file) == SOME
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"step_tokens": "many"}'])
def test_a_file_that_cannot_be_read_is_said(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x.json").write_text(text)
    assert load_calibration(tmp_path / "x.json") is None
    assert "x.json is left out" in caplog.text


def test_another_model_device_or_number_of_threads_is_another_file(tmp_path: Path) -> None:
    def file(fingerprint: str, num_threads: int | None) -> Path:
        return calibration_file(
            tmp_path, fingerprint=fingerprint, device=CPU, num_threads=num_threads
        )

    assert file("a", None) == file("a", torch.get_num_threads())
    assert len({file("a", 1), file("b", 1), file("a", 99)}) == 3


def test_a_real_engine_is_measured_and_its_knee_is_the_budget_of_the_next(
    bert_folder: Path, tmp_path: Path
) -> None:
    engine = RoseEngine.load(load_checkpoint(str(bert_folder)), num_threads=1)
    heard: list[int] = []
    made = calibrate(engine, sizes=(16, 100), on_size=lambda t: heard.append(t.num_tokens))
    assert [t.num_tokens for t in made.times] == [16, 100]
    assert heard == [16, 100] * 3, "in turns"
    assert all(t.eager_ms > 0 and t.replayed_ms is None for t in made.times)
    assert made.step_tokens in (16, 100)
    assert made.max_graph_tokens is None
    file = calibration_file(
        tmp_path, fingerprint=engine.info.fingerprint, device=CPU, num_threads=1
    )
    assert engine.counters() == {}
    engine.close()
    save_calibration(file, msgspec.structs.replace(made, step_tokens=16))

    def budget(num_threads: int) -> int:
        loaded = RoseEngine.load(
            load_checkpoint(str(bert_folder)), num_threads=num_threads, cache_folder=tmp_path
        )
        loaded.close()
        return loaded.default_step_tokens

    assert budget(1) == 16
    assert budget(2) == 2048, "measured with another number of threads"


def test_sizes_whose_steps_take_too_long_are_not_looked_at(
    bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate_module, "_MAX_STEP_S", 0.0)
    engine = RoseEngine.load(load_checkpoint(str(bert_folder)), num_threads=1)
    assert [t.num_tokens for t in calibrate(engine, sizes=(16, 32, 64)).times] == [16]
    engine.close()


def test_tulip_takes_the_knee_and_says_why_and_a_flag_overrides_it(
    bert_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    caplog.set_level(logging.INFO)

    def start(**settings: int) -> tuple[int, str]:
        caplog.clear()
        made = TulipSettings(model=str(bert_folder), num_threads=1, warm_up=False, **settings)
        engine = load_rose(made)
        engine.close()
        limits = made.limits(engine.info, engine.default_step_tokens)
        info.append(engine.info.fingerprint)
        return limits.max_step_tokens, caplog.text

    info: list[str] = []
    budget, said = start()
    assert budget == 2048
    assert "steps of up to 2048 tokens: the default of such a device" in said
    file = calibration_file(default_cache_folder(), fingerprint=info[0], device=CPU, num_threads=1)
    save_calibration(file, SOME)
    budget, said = start()
    assert budget == 96
    assert "the knee measured on a CPU on 2026-11-30" in said
    budget, said = start(max_step_tokens=300)
    assert budget == 300
    assert "max_step_tokens says so" in said
