"""What a child says arrives, and its end reaches what it started."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from hotbed.serve.child import Child, ChildSpec
from tests.serve.support import READY, SAY, WAIT, Recorder, spec


async def start(child: ChildSpec, run_dir: Path, recorder: Recorder) -> tuple[Child, asyncio.Event]:
    ready = asyncio.Event()
    running = await Child.start(child, run_dir, write_line=recorder.write_line, on_ready=ready.set)
    return running, ready


async def test_both_outputs_arrive_line_by_line_and_the_last_without_its_end(run_dir: Path) -> None:
    script = "import os; os.write(1, b'one\\n'); os.write(2, b'tw\\xff\\n'); os.write(1, b'three')"
    recorder = Recorder()
    child, _ = await start(spec("a", script), run_dir, recorder)
    assert await child.wait() == 0
    assert recorder.lines == [("a", "one"), ("a", "tw\ufffd"), ("a", "three")]


async def test_line_without_end_neither_grows_for_ever_nor_is_lost(run_dir: Path) -> None:
    recorder = Recorder()
    child, _ = await start(spec("a", "print('x' * 300_000, end='')"), run_dir, recorder)
    await child.wait()
    parts = recorder.of("a")
    assert len(parts) > 1
    assert "".join(parts) == "x" * 300_000


async def test_ready_only_when_the_child_says_so(run_dir: Path) -> None:
    other = "from hotbed.core.notify import notify; notify('STATUS=loading')"
    recorder = Recorder()
    child, ready = await start(
        spec("a", SAY, other, "say('loading')", WAIT),
        run_dir,
        recorder,
    )
    await recorder.until(lambda r: r.of("a") == ["loading"])
    assert not ready.is_set()
    assert child.ready_for_s is None
    child.kill()
    assert await child.wait() == -signal.SIGKILL

    child, ready = await start(spec("a", READY, WAIT), run_dir, recorder)
    async with asyncio.timeout(20):
        await ready.wait()
    assert child.ready_for_s is not None
    child.terminate()
    assert await child.wait() == -signal.SIGTERM


async def test_nothing_to_notify_is_no_error(run_dir: Path) -> None:
    script = f"import os; del os.environ['NOTIFY_SOCKET']; {READY}; print('went on')"
    recorder = Recorder()
    child, ready = await start(spec("a", script), run_dir, recorder)
    assert await child.wait() == 0
    assert recorder.of("a") == ["went on"]
    assert not ready.is_set()


async def test_kill_reaches_what_the_child_started(run_dir: Path) -> None:
    # Else a compile worker of a killed replica would keep its memory.
    script = [
        SAY,
        "import subprocess, sys",
        "p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)",
        "say(p.pid)",
        WAIT,
    ]
    recorder = Recorder()
    child, _ = await start(spec("a", *script), run_dir, recorder)
    await recorder.until(lambda r: len(r.of("a")) == 1)
    watch = os.pidfd_open(int(recorder.of("a")[0]))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(watch, ended.set)
    child.kill()
    assert await child.wait() == -signal.SIGKILL
    async with asyncio.timeout(20):
        await ended.wait()
    asyncio.get_running_loop().remove_reader(watch)
    os.close(watch)


async def test_signals_of_the_terminal_do_not_reach_the_child(run_dir: Path) -> None:
    # Ctrl-C goes to the terminal's process group; the child must be in another one to drain.
    recorder = Recorder()
    child, _ = await start(spec("a", "import os; print(os.getpgid(0))"), run_dir, recorder)
    await child.wait()
    assert recorder.of("a") != [str(os.getpgid(0))]


async def test_too_long_folder_is_an_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with pytest.raises(OSError, match="too long"):
        await start(spec("a", "pass"), folder, Recorder())


async def test_ending_a_child_that_has_ended_does_nothing(run_dir: Path) -> None:
    child, _ = await start(spec("a", "pass"), run_dir, Recorder())
    assert await child.wait() == 0
    child.terminate()
    child.kill()
