"""The step loop over a fake engine, without gRPC: steps in flight, gathering, failures, hangs."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import Engine, EngineDeadError, StepResult
from hotbed.tulip.device import DeviceThread
from hotbed.tulip.loop import StepLoop
from hotbed.tulip.metrics import Metrics
from hotbed.tulip.testing import FAKE_INFO, FakeEngine, expected_rows
from hotbed.tulip.work import Answer
from hotbed.wire.limits import Limits
from tests.tulip.conftest import WAIT_S

SPEC = OutputSpec(FAKE_INFO.dimensions, normalize=True)
LIMITS = Limits(100, 50, 10_000, 100, 1000, 10)

MakeLoop = Callable[..., Awaitable[tuple[StepLoop, FakeEngine]]]


@pytest.fixture
async def make_loop() -> AsyncIterator[MakeLoop]:
    """Makes a step loop and its engine; keyword arguments go to the loop."""
    made: list[tuple[StepLoop, DeviceThread, FakeEngine]] = []

    async def make(engine: FakeEngine | None = None, **kwargs: Any) -> tuple[StepLoop, FakeEngine]:
        fake = engine or FakeEngine()
        device = DeviceThread(lambda: fake)
        steps = StepLoop(await device.loaded(), device, LIMITS, Metrics(), **kwargs)
        made.append((steps, device, fake))
        return steps, fake

    yield make
    for steps, device, fake in made:
        fake.release()
        assert await device.close(WAIT_S)
        assert fake.closed
        steps.close()


def submit(steps: StepLoop, *ids: list[int], **kwargs: Any) -> asyncio.Future[Answer]:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    batch = RaggedBatch.from_sequences(ids)
    steps.submit(batch, SPEC, on_answer=future.set_result, **kwargs)
    return future


async def result(future: asyncio.Future[Answer]) -> Any:
    async with asyncio.timeout(WAIT_S):
        return (await future).result


async def begun(engine: FakeEngine, num_steps: int) -> None:
    await asyncio.to_thread(engine.wait_begun, num_steps)


async def test_a_lone_item_starts_at_once(make_loop: MakeLoop) -> None:
    steps, engine = await make_loop()
    rows = await result(submit(steps, [1, 2], [3]))
    np.testing.assert_array_equal(rows, expected_rows([[1, 2], [3]]))
    assert list(engine.steps) == [(2, 3)]


async def test_items_submitted_together_share_a_step(make_loop: MakeLoop) -> None:
    steps, engine = await make_loop()
    await asyncio.gather(*(submit(steps, [n]) for n in range(20)))
    assert list(engine.steps) == [(20, 20)]


async def test_a_full_step_is_prepared_behind_the_running_one(make_loop: MakeLoop) -> None:
    prepared = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Counting(FakeEngine):
        calls = 0

        def step(self, *args: Any) -> Any:
            self.calls += 1
            if self.calls == 2:
                loop.call_soon_threadsafe(prepared.set)
            return super().step(*args)

    steps, engine = await make_loop(Counting(), min_ahead_tokens=50)
    engine.hold()
    first = submit(steps, [1])
    await begun(engine, 1)
    others = [submit(steps, [n] * 25) for n in range(2, 10)]
    async with asyncio.timeout(WAIT_S):
        await prepared.wait()  # while the first is still held
    assert not first.done()
    assert len(engine.steps) == 1
    assert engine.calls == 2, "more steps than max_steps_in_flight"
    engine.release()
    for n, future in enumerate(others, 2):
        np.testing.assert_array_equal(await result(future), expected_rows([[n] * 25]))
    assert list(engine.steps) == [(1, 1), (4, 100), (4, 100)]


async def test_few_tokens_gather_until_the_running_step_ends(make_loop: MakeLoop) -> None:
    steps, engine = await make_loop(min_ahead_tokens=50)
    engine.hold()
    futures = [submit(steps, [1])]
    await begun(engine, 1)
    for n in range(2, 7):
        futures.append(submit(steps, [n] * 2))
        await asyncio.sleep(0)
    engine.release()
    for future in futures:
        await result(future)
    assert list(engine.steps) == [(1, 1), (5, 10)]


async def test_one_step_at_a_time_when_asked_for(make_loop: MakeLoop) -> None:
    steps, engine = await make_loop(max_steps_in_flight=1, min_ahead_tokens=0)
    engine.hold()
    futures = [submit(steps, [1] * 100)]
    await begun(engine, 1)
    futures += [submit(steps, [n] * 100) for n in range(2, 4)]
    await asyncio.sleep(0)
    engine.release()
    for future in futures:
        await result(future)
    assert [tokens for _, tokens in engine.steps] == [100, 100, 100]


async def test_idle_is_told_only_when_everything_is_answered(make_loop: MakeLoop) -> None:
    steps, engine = await make_loop()
    assert steps.idle.is_set()
    engine.hold()
    first, second = submit(steps, [1]), submit(steps, [2])
    assert not steps.idle.is_set()
    engine.release()
    await asyncio.gather(first, second)
    await asyncio.wait_for(steps.idle.wait(), WAIT_S)
    assert steps.num_open_items == 0


async def test_a_failing_step_fails_one_item_and_the_log_holds_no_ids(
    make_loop: MakeLoop, caplog: pytest.LogCaptureFixture
) -> None:
    steps, engine = await make_loop()
    engine.poison[29_999] = ValueError("boom")
    good, bad = submit(steps, [1, 2]), submit(steps, [29_999])
    np.testing.assert_array_equal(await result(good), expected_rows([[1, 2]]))
    error = await result(bad)
    assert error.code is ErrorCode.INTERNAL
    assert "a step of 2 sequences, 3 tokens failed: ValueError: boom" in caplog.text
    assert "29999" not in caplog.text


async def test_a_nan_that_leaks_fails_the_guilty_input_alone(make_loop: MakeLoop) -> None:
    engine = FakeEngine()
    engine.leaks_nan = True
    engine.non_finite.add(29_999)
    steps, _ = await make_loop(engine)
    good, spoiled, guilty = (submit(steps, ids) for ids in ([1, 2], [3], [29_999]))
    np.testing.assert_array_equal(await result(good), expected_rows([[1, 2]]))
    np.testing.assert_array_equal(await result(spoiled), expected_rows([[3]]))
    assert (await result(guilty)).code is ErrorCode.INTERNAL
    assert list(engine.steps) == [(3, 4), (1, 1), (1, 1)]


async def test_idle_work_is_done_without_a_step_and_steps_go_between(make_loop: MakeLoop) -> None:
    engine = FakeEngine()
    engine.idle_work = 3
    steps, _ = await make_loop(engine)
    async with asyncio.timeout(WAIT_S):
        while engine.num_idle_done < 3:
            np.testing.assert_array_equal(await result(submit(steps, [5])), expected_rows([[5]]))
            await asyncio.sleep(0.03)  # longer than the device counts as busy


async def test_an_engine_whose_idle_work_fails_serves_on(
    make_loop: MakeLoop, caplog: pytest.LogCaptureFixture
) -> None:
    tried = threading.Event()

    class Failing(FakeEngine):
        def idle(self) -> bool:
            tried.set()
            raise RuntimeError("out of memory")

    steps, _ = await make_loop(Failing())
    assert await asyncio.to_thread(tried.wait, WAIT_S)
    np.testing.assert_array_equal(await result(submit(steps, [5])), expected_rows([[5]]))
    assert "idle work failed" in caplog.text


async def test_a_split_step_runs_before_new_work(make_loop: MakeLoop) -> None:
    steps, engine = await make_loop()
    engine.hold()
    engine.fail_next(ValueError("once"))
    old = [submit(steps, [n, n]) for n in range(4)]
    await begun(engine, 1)
    new = [submit(steps, [9])]
    engine.release()
    for future in old + new:
        assert not isinstance(await result(future), HotbedError)
    assert list(engine.steps) == [(4, 8), (2, 4), (2, 4), (1, 1)]


async def test_rows_of_the_wrong_shape_are_an_engines_fault_and_not_sent(
    make_loop: MakeLoop,
) -> None:
    class Wrong(FakeEngine):
        def _run(self, call: Any) -> StepResult:
            result = super()._run(call)
            return StepResult([rows[:, :5] for rows in result.rows], result.finite)

    steps, _ = await make_loop(Wrong())
    error = await result(submit(steps, [1]))
    assert error.code is ErrorCode.INTERNAL


async def test_a_dead_engine_answers_all_and_refuses_what_comes(make_loop: MakeLoop) -> None:
    steps, engine = await make_loop()
    engine.hold()
    futures = [submit(steps, [1])]
    await begun(engine, 1)
    futures += [submit(steps, [2]), submit(steps, [3] * 100)]
    engine.die()
    for future in futures:
        assert (await result(future)).code is ErrorCode.UNAVAILABLE
    await asyncio.wait_for(steps.died.wait(), WAIT_S)
    with pytest.raises(HotbedError) as caught:
        submit(steps, [4])
    assert caught.value.code is ErrorCode.UNAVAILABLE


@pytest.mark.parametrize("error", [asyncio.CancelledError(), EngineDeadError("gone")])
async def test_a_step_the_engine_threw_away_leaves_nobody_waiting(
    make_loop: MakeLoop, error: BaseException
) -> None:
    class ThrowsAway(FakeEngine):
        def step(self, *args: Any) -> Any:
            raise error

    steps, _ = await make_loop(ThrowsAway())
    assert (await result(submit(steps, [1]))).code is ErrorCode.UNAVAILABLE
    assert steps.died.is_set()


async def test_a_bug_of_ours_ends_in_answers_and_not_in_silence(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, _ = await make_loop()

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(steps._scheduler, "complete", broken)
    assert (await result(submit(steps, [1]))).code is ErrorCode.UNAVAILABLE
    assert steps.died.is_set()


async def test_a_step_that_hangs_is_the_engines_death(make_loop: MakeLoop) -> None:
    steps, engine = await make_loop(step_timeout_s=0.05)
    engine.hold()
    first = submit(steps, [1])
    assert (await result(first)).code is ErrorCode.UNAVAILABLE
    assert steps.died.is_set()


async def test_a_young_step_under_the_watch_is_not_a_hang(make_loop: MakeLoop) -> None:
    steps, engine = await make_loop(step_timeout_s=1000.0)
    engine.hold()
    running = submit(steps, [1])
    await begun(engine, 1)
    steps._check_progress()  # as if the timer of an earlier step fired now
    assert not steps.died.is_set()
    assert steps._watch is not None, "nobody watches the step"
    engine.release()
    await running


async def test_abandon_answers_what_runs_and_what_waits(make_loop: MakeLoop) -> None:
    steps, engine = await make_loop()
    engine.hold()
    futures = [submit(steps, [1]), submit(steps, [2] * 100)]
    await begun(engine, 1)
    steps.abandon("stopping")
    for future in futures:
        assert (await result(future)).message == "the server is stopping"
    assert steps.idle.is_set()


async def test_the_queue_of_a_cancelled_item_is_free_at_once(make_loop: MakeLoop) -> None:
    steps, engine = await make_loop(max_steps_in_flight=1)
    engine.hold()
    running = submit(steps, [1])
    await begun(engine, 1)
    answers: list[Answer] = []
    batch = RaggedBatch.from_sequences([[5] * 10] * 100)
    items = [steps.submit(batch, SPEC, on_answer=answers.append, client=n) for n in range(10)]
    with pytest.raises(HotbedError):
        submit(steps, [5])
    for item in items:
        steps.cancel(item)
        steps.cancel(item)
    submit(steps, *[[5] * 10] * 100)
    await asyncio.sleep(0)
    assert len(answers) == 10
    engine.release()
    await running


async def test_an_engine_that_fails_to_close_does_not_hang_the_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Sticky(FakeEngine):
        def close(self) -> None:
            super().close()
            raise OSError("driver")

    engine: Engine = Sticky()
    device = DeviceThread(lambda: engine)
    await device.loaded()
    with caplog.at_level(logging.ERROR):
        assert await device.close(WAIT_S)
    assert "driver" in caplog.text


async def test_a_device_that_hangs_does_not_keep_the_process_from_ending() -> None:
    engine = FakeEngine()
    engine.hold()
    device = DeviceThread(lambda: engine)
    await device.loaded()
    engine.step(RaggedBatch.from_sequences([[1]]), [])
    engine.close = engine._worker.join  # type: ignore[method-assign]
    assert not await device.close(0.01)
    engine.release()
    engine._queue.put(None)
