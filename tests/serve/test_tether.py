"""No orphan keeps a port or a GPU after the supervisor was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from hotbed.serve import tether
from tests.serve.support import OBEYS, WAIT

_PARENT = """
import os, subprocess, sys
_, tether, script = sys.argv
python = sys.executable
subprocess.Popen([python, tether, str(os.getpid()), python, "-c", script]).wait()
"""


def test_child_is_told_to_stop_when_its_parent_is_killed() -> None:
    child = f"{OBEYS}; say('up')\n{WAIT}"
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, tether.__file__, child], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.kill()
        # The child holds the pipe too: its end comes only when both are gone.
        assert parent.stdout.read() == "told\n"
    assert parent.returncode == -signal.SIGKILL


def test_nothing_is_started_for_a_parent_that_is_gone() -> None:
    grandparent = os.getppid()
    run = subprocess.run(
        [sys.executable, tether.__file__, str(grandparent), sys.executable, "-c", "print('ran')"],
        capture_output=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (1, b"")


def test_exit_code_and_arguments_are_the_commands_own() -> None:
    script = "import sys; print(sys.argv[1:]); sys.exit(7)"
    command = [sys.executable, "-c", script, "--a b", ""]
    run = subprocess.run(
        [sys.executable, tether.__file__, str(os.getpid()), *command],
        capture_output=True,
        check=False,
        text=True,
    )
    assert (run.returncode, run.stdout) == (7, "['--a b', '']\n")
