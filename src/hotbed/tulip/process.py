"""What a Tulip process has around its server: event loop, signals, the word that it is ready."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

import uvloop

from hotbed.core.notify import notify
from hotbed.tulip.server import Ending, EngineLoader, serve
from hotbed.tulip.settings import TulipSettings

log = logging.getLogger(__name__)


def run_process(settings: TulipSettings, load_engine: EngineLoader) -> int:
    """Serve until SIGTERM or SIGINT, then drain; a second signal kills.

    Returns:
        The exit code, see `hotbed.tulip.server.Ending`. Does not return while a thread is inside
        the engine (a device that hangs, a model that is being loaded): then the process ends here.
    """
    ending = uvloop.run(_serve(settings, load_engine))
    if ending.is_device_busy:
        # Python would wait for the engine's threads, so the supervisor for this process, for ever.
        logging.shutdown()
        os._exit(ending.code)
    return ending.code


async def _serve(settings: TulipSettings, load_engine: EngineLoader) -> Ending:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)

    def on_signal(name: str) -> None:
        log.info("stopping on %s", name)
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, on_signal, number.name)

    def on_ready(address: str) -> None:
        log.info("ready: %s on %s", settings.model, address)
        notify()

    return await serve(settings, load_engine, stop=stop, on_ready=on_ready)
