"""The command line's frame: the app that the commands join, and how a run of it ends.

Exit codes: 0 done, 1 failed, 2 wrong options or a model that can never work, 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from hotbed import __version__
from hotbed.core.errors import HotbedError
from hotbed.core.exit_codes import (
    EXIT_CONFIGURATION,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    exit_code,
)

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def _one_line(error: CycloptsError) -> str:
    return f"hotbed: {' '.join(str(error).split())}"


app = App(
    name="hotbed",
    help="Serve text-embedding and reranking models as fast as the hardware allows.",
    version=__version__,
    default_parameter=Parameter(negative_iterable=""),
    error_formatter=_one_line,
    result_action="return_value",
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line (`sys.argv` if None) and exit."""
    sys.exit(_run(argv))


def _run(argv: Sequence[str] | None) -> int:
    try:
        command, bound, _ = app.parse_args(sys.argv[1:] if argv is None else argv)
    except ValueError as error:  # a settings record refuses a value or a combination
        return _complain(str(error), EXIT_CONFIGURATION)
    try:
        result = command(*bound.args, **bound.kwargs)
        return result if isinstance(result, int) else 0  # --help and --version return nothing
    except HotbedError as error:
        return _complain(error.message, exit_code(error))
    except KeyboardInterrupt:
        return _complain("stopped", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"hotbed: {message}\n")
    return code


def log_to_stderr(level: str) -> None:
    """Logs of a command that is a program of its own go to standard error."""
    logging.basicConfig(level=level.upper(), format=_LOG_FORMAT)
