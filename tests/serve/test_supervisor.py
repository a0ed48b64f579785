"""The supervisor with fake children: order, restarts, giving up, stopping."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from hotbed.core.exit_codes import EXIT_CONFIGURATION
from hotbed.serve.child import ChildSpec
from hotbed.serve.restarts import RestartLimits
from hotbed.serve.supervisor import Supervisor
from tests.serve.support import DEAF, OBEYS, READY, SAY, WAIT, Recorder, spec

QUICK = RestartLimits(first_delay_s=0.01, max_delay_s=0.02, max_failed_starts=3)


class Running:
    """A supervisor at work in this process; signals to it are signals to us."""

    def __init__(self, recorder: Recorder, task: asyncio.Task[int], ready: asyncio.Event) -> None:
        self.recorder = recorder
        self.task = task
        self.ready = ready

    async def until_ready(self) -> None:
        async with asyncio.timeout(20):
            await self.ready.wait()

    async def exit_code(self) -> int:
        async with asyncio.timeout(20):
            return await self.task

    async def signal(self, number: int = signal.SIGTERM) -> None:
        os.kill(os.getpid(), number)
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def supervise(
    *stages: Sequence[ChildSpec],
    run_dir: Path,
    stop_grace_s: float = 20.0,
    limits: RestartLimits = QUICK,
) -> AsyncIterator[Running]:
    recorder = Recorder()
    ready = asyncio.Event()

    async def on_ready() -> None:
        ready.set()

    supervisor = Supervisor(
        stages,
        run_dir,
        limits=limits,
        stop_grace_s=stop_grace_s,
        write_line=recorder.write_line,
        on_ready=on_ready,
    )
    running = Running(recorder, asyncio.create_task(supervisor.run()), ready)
    yield running
    await running.exit_code()  # a test that ends with children still running hangs here and fails


async def test_second_stage_waits_until_all_of_the_first_are_ready(run_dir: Path) -> None:
    gate = run_dir / "gate"
    os.mkfifo(gate)
    slow = spec("slow", SAY, f"open({str(gate)!r}).read()", "say('ready')", READY, OBEYS, WAIT)
    quick = spec("quick", READY, SAY, "say('ready')", OBEYS, WAIT)
    second = spec("second", SAY, "say('started')", READY, OBEYS, WAIT)
    async with supervise([slow, quick], [second], run_dir=run_dir) as running:
        await running.recorder.until(lambda r: "ready" in r.of("quick"))
        assert not running.recorder.of("second")
        gate.write_text("")
        await running.until_ready()
        said = running.recorder.lines
        assert said.index(("second", "started")) > said.index(("slow", "ready"))
        await running.signal()
        assert await running.exit_code() == 0


async def test_killed_child_comes_back_and_the_others_stay(run_dir: Path) -> None:
    say_pid = "import os; say(os.getpid())"
    specs = [spec(name, OBEYS, say_pid, READY, WAIT) for name in ("a", "b")]
    async with supervise(specs, run_dir=run_dir) as running:
        await running.until_ready()
        os.kill(int(running.recorder.of("a")[0]), signal.SIGKILL)
        await running.recorder.until(lambda r: len(r.of("a")) == 2)
        assert running.recorder.of("serve") == ["a ended with SIGKILL; starting again in 0.01 s"]
        assert len(running.recorder.of("b")) == 1
        await running.signal()
        assert await running.exit_code() == 0


async def test_child_that_fails_again_after_it_was_ready_is_tried_for_ever(run_dir: Path) -> None:
    marker = run_dir / "was-ready"
    script = (
        f"import os, sys\nif os.path.exists({str(marker)!r}): sys.exit(1)\n"
        f"open({str(marker)!r}, 'w').close()"
    )
    async with supervise([spec("a", script, READY)], run_dir=run_dir) as running:
        await running.recorder.until(lambda r: len(r.of("serve")) >= QUICK.max_failed_starts + 2)
        await running.signal()
        assert await running.exit_code() == 0


async def test_wrong_settings_end_the_service_at_once_with_their_exit_code(run_dir: Path) -> None:
    bad = spec("bad", f"import sys; sys.exit({EXIT_CONFIGURATION})")
    good = spec("good", OBEYS, READY, WAIT)
    async with supervise([good], [bad], run_dir=run_dir) as running:
        assert await running.exit_code() == EXIT_CONFIGURATION
        assert running.recorder.of("good") == ["told"]
        assert running.recorder.of("serve") == [
            "stopping",
            "gives up: bad cannot run with these settings (its message is above)",
        ]
        assert not running.ready.is_set()


async def test_child_that_never_gets_ready_is_given_up(run_dir: Path) -> None:
    async with supervise([spec("bad", "import sys; sys.exit(5)")], run_dir=run_dir) as running:
        assert await running.exit_code() == 1
        assert running.recorder.of("serve")[-1] == (
            "gives up: bad ended 3 times before it was ready, the last time with exit code 5"
        )


async def test_last_stage_is_stopped_first_and_the_first_only_after_it_ended(run_dir: Path) -> None:
    drains = [OBEYS.replace("say('told')", "say('drained')")]
    replica, worker = spec("replica", OBEYS, READY, WAIT), spec("worker", *drains, READY, WAIT)
    async with supervise([replica], [worker], run_dir=run_dir) as running:
        await running.until_ready()
        await running.signal(signal.SIGINT)
        assert await running.exit_code() == 0
        assert running.recorder.lines == [
            ("serve", "stopping"),
            ("worker", "drained"),
            ("replica", "told"),
        ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_every_stop_signal_ends_well(run_dir: Path, number: int) -> None:
    async with supervise([spec("a", OBEYS, READY, WAIT)], run_dir=run_dir) as running:
        await running.until_ready()
        await running.signal(number)
        assert await running.exit_code() == 0


async def test_second_signal_kills_at_once(run_dir: Path) -> None:
    deaf = spec("deaf", DEAF, READY, WAIT)
    async with supervise([deaf], run_dir=run_dir, stop_grace_s=3600) as running:
        await running.until_ready()
        await running.signal()
        await running.recorder.until(lambda r: "stopping" in r.of("serve"))
        await running.signal()
        assert await running.exit_code() == 1
        assert "deaf is killed" in running.recorder.of("serve")


async def test_deaf_child_is_killed_after_the_grace_time(run_dir: Path) -> None:
    deaf = spec("deaf", DEAF, READY, WAIT)
    async with supervise([deaf], run_dir=run_dir, stop_grace_s=0.05) as running:
        await running.until_ready()
        await running.signal()
        assert await running.exit_code() == 1
        assert "deaf is killed after 0.05 s" in running.recorder.of("serve")


async def test_stop_while_still_starting(run_dir: Path) -> None:
    loading = spec("loading", OBEYS, "say('up')", WAIT)
    second = spec("second", SAY, "say('started')", READY, WAIT)
    async with supervise([loading], [second], run_dir=run_dir) as running:
        await running.recorder.until(lambda r: "up" in r.of("loading"))
        await running.signal()
        assert await running.exit_code() == 0
        assert not running.recorder.of("second")


async def test_stop_while_waiting_for_a_restart(run_dir: Path) -> None:
    slow = RestartLimits(first_delay_s=3600, max_delay_s=3600)
    async with supervise([spec("a", "pass")], run_dir=run_dir, limits=slow) as running:
        await running.recorder.until(lambda r: len(r.of("serve")) == 1)
        await running.signal()
        assert await running.exit_code() == 0


async def test_failing_drain_is_told_and_shows_in_the_exit_code(run_dir: Path) -> None:
    fails = OBEYS.replace("sys.exit(0)", "sys.exit(3)")
    async with supervise([spec("a", fails, READY, WAIT)], run_dir=run_dir) as running:
        await running.until_ready()
        await running.signal()
        assert await running.exit_code() == 1
        assert "a ended with exit code 3" in running.recorder.of("serve")


async def test_fault_of_the_supervisor_itself_leaves_no_child_behind(run_dir: Path) -> None:
    recorder = Recorder()

    async def on_ready() -> None:
        raise RuntimeError("page broken")

    supervisor = Supervisor(
        [[spec("a", OBEYS, READY, WAIT)]],
        run_dir,
        limits=QUICK,
        stop_grace_s=20,
        write_line=recorder.write_line,
        on_ready=on_ready,
    )
    with pytest.raises(RuntimeError, match="page broken"):
        await supervisor.run()
    assert recorder.of("a") == ["told"]
