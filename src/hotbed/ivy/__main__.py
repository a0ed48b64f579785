"""`python -m hotbed.ivy`: one Ivy process."""

from __future__ import annotations

import gc
import logging
import os
import ssl
import sys
from collections.abc import Sequence
from typing import Annotated

import cyclopts
import uvloop

from hotbed.core.errors import HotbedError
from hotbed.core.exit_codes import EXIT_CONFIGURATION, EXIT_FAILURE, exit_code
from hotbed.core.log_format import TEXT_FORMAT, set_format
from hotbed.ivy.app import Gateway
from hotbed.ivy.served_model import load_served_models
from hotbed.ivy.server import serve
from hotbed.ivy.settings import IvySettings
from hotbed.text.environment import TOKENIZER_ENVIRONMENT

log = logging.getLogger(__name__)


def run(settings: IvySettings) -> int:
    """Load the model's tokenizer and serve until SIGTERM or SIGINT, then drain.

    Returns:
        Exit code: 0 after a signal; 1 if the start failed in a way that may pass; 2 if settings or
        model can never work.
    """
    # Read by the tokenizer libraries when first used; there is no call for it.
    for name, value in TOKENIZER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    set_format(settings.log_format)
    try:
        models = load_served_models(settings)
    except HotbedError as error:
        log.error("cannot load the models: %s", error.message)
        return exit_code(error)
    # What is loaded stays: without this every full collection walks it, and requests wait.
    gc.collect()
    gc.freeze()

    async def main() -> None:
        # The event loop must be there: a gateway belongs to one.
        await serve(Gateway(settings, *models), settings)

    try:
        uvloop.run(main())
    except (HotbedError, OSError, ValueError, ModuleNotFoundError) as error:
        message, code = _why(error, settings)
        log.error("%s", message)
        return code
    return 0


def _why(error: Exception, settings: IvySettings) -> tuple[str, int]:
    """(what to say, exit code) of a start that failed."""
    if isinstance(error, HotbedError):
        return error.message, exit_code(error)
    if isinstance(error, ModuleNotFoundError):
        return f"traces need the extra otel (pip install 'hotbed[otel]'): {error}", (
            EXIT_CONFIGURATION
        )
    if isinstance(error, FileNotFoundError | ssl.SSLError):
        return f"tls_certfile or tls_keyfile: {error}", EXIT_CONFIGURATION
    if isinstance(error, OSError):
        return f"cannot listen on {settings.host}: {error}", EXIT_FAILURE
    return str(error), EXIT_CONFIGURATION  # two models share a name


def _command(settings: Annotated[IvySettings | None, cyclopts.Parameter(name="*")] = None) -> int:
    """Run one HTTP gateway in front of replicas that run already."""
    logging.basicConfig(level="INFO", format=TEXT_FORMAT)
    return run(settings or IvySettings())


def _main(argv: Sequence[str]) -> int:
    app = cyclopts.App(name="python -m hotbed.ivy", result_action="return_value")
    app.default(_command)
    try:
        return int(app(argv) or 0)
    except ValueError as error:  # the settings record refuses a value or a combination
        sys.stderr.write(f"hotbed ivy: {error}\n")
        return EXIT_CONFIGURATION


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
