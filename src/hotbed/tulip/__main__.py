"""`python -m hotbed.tulip`: one Tulip process. The only file of Tulip that knows ROSE."""

from __future__ import annotations

import gc
import logging
import sys
from typing import TYPE_CHECKING, Annotated

import cyclopts

from hotbed.core.cache_folder import default_cache_folder
from hotbed.core.exit_codes import EXIT_CONFIGURATION
from hotbed.core.log_format import TEXT_FORMAT, set_format
from hotbed.tulip.process import run_process
from hotbed.tulip.server import EngineLoader
from hotbed.tulip.settings import TulipSettings

if TYPE_CHECKING:
    from hotbed.core.step import Engine
    from hotbed.rose.engine import RoseEngine

_log = logging.getLogger("hotbed.tulip")


def run(settings: TulipSettings, load_engine: EngineLoader | None = None) -> int:
    """Serve until SIGTERM or SIGINT, then drain; a second signal kills.

    Args:
        settings: of the process.
        load_engine: makes the engine; None loads the model with ROSE.

    Returns:
        Exit code: 0 after a signal; 1 if the engine died or the start failed in a way that may
        pass; 2 if settings or model can never work.
    """
    set_format(settings.log_format)
    return run_process(settings, load_engine or load_rose)


def load_rose(settings: TulipSettings) -> Engine:
    """The settings' model in a RoseEngine, warm."""
    from hotbed.checkpoint.load import load_checkpoint  # noqa: PLC0415

    checkpoint = load_checkpoint(
        settings.model,
        revision=settings.revision,
        offline=settings.offline,
        task=settings.task,
    )
    # Here: the port is bound by now and health checks are answered while torch is imported, and a
    # model that is not there is found without it.
    from hotbed.rose.attention.select import AttentionSettings  # noqa: PLC0415
    from hotbed.rose.cuda import CudaSettings  # noqa: PLC0415
    from hotbed.rose.engine import RoseEngine  # noqa: PLC0415
    from hotbed.rose.graphs import CaptureMode  # noqa: PLC0415

    engine = RoseEngine.load(
        checkpoint,
        device=settings.device,
        dtype=settings.dtype,
        invariant=settings.invariant,
        attention=AttentionSettings(settings.attention, settings.kernel_dir),
        num_threads=settings.num_threads,
        cuda=CudaSettings(
            capture=CaptureMode(settings.capture),
            max_graph_bytes=settings.max_graph_mib << 20,
            max_graph_tokens=settings.max_graph_tokens,
        ),
        cache_folder=default_cache_folder(),
    )
    _log.info("%s", _step_budget(settings, engine))
    if settings.warm_up:
        engine.warm_up()
    # What is loaded stays: without this every full collection walks torch's modules and the model,
    # and requests wait for it.
    gc.collect()
    gc.freeze()
    return engine


def _step_budget(settings: TulipSettings, engine: RoseEngine) -> str:
    """Which token budget steps have, and why."""
    measured = engine.calibration
    if settings.max_step_tokens:
        return f"steps of up to {settings.max_step_tokens} tokens: max_step_tokens says so"
    if measured is not None:
        return (
            f"steps of up to {measured.step_tokens} tokens: the knee measured on {measured.device} "
            f"on {measured.date}"
        )
    return (
        f"steps of up to {engine.default_step_tokens} tokens: the default of such a device; "
        f"`hotbed doctor --calibrate {settings.model}` measures what suits this one"
    )


def _command(settings: Annotated[TulipSettings | None, cyclopts.Parameter(name="*")] = None) -> int:
    """Run one batching gRPC server with one model on one device."""
    settings = settings or TulipSettings()
    logging.basicConfig(level=settings.log_level.upper(), format=TEXT_FORMAT)
    return run(settings)


def _main() -> int:
    app = cyclopts.App(name="python -m hotbed.tulip", result_action="return_value")
    app.default(_command)
    try:
        return int(app() or 0)
    except ValueError as error:  # the settings record refuses a value or a combination
        sys.stderr.write(f"hotbed tulip: {error}\n")
        return EXIT_CONFIGURATION


if __name__ == "__main__":
    sys.exit(_main())
