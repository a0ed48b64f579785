"""`hotbed serve`: a whole service on one machine."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from rich.console import Console

from hotbed.core.exit_codes import EXIT_CONFIGURATION
from hotbed.core.notify import notify
from hotbed.ivy.settings import IvySettings
from hotbed.serve.cores import num_usable_cores
from hotbed.serve.info import ask_info
from hotbed.serve.output import OutputLog
from hotbed.serve.page import Service, base_url, show_page
from hotbed.serve.plan import make_plan
from hotbed.serve.port import PortError, reserve_port
from hotbed.serve.restarts import RestartLimits
from hotbed.serve.settings import ServeSettings
from hotbed.serve.supervisor import Supervisor
from hotbed.tulip.settings import TulipSettings

# A stage that was asked to stop bounds its own wait; only past that and this is it killed.
_GRACE_MARGIN_S = 5.0


def run(settings: ServeSettings, tulip: TulipSettings, ivy: IvySettings) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; the process's exit code.

    Args:
        settings: of the service as a whole.
        tulip: more for every replica.
        ivy: more for every worker.
    """
    log = OutputLog(settings.log_format)
    try:
        holder = reserve_port(settings.host, settings.port)
    except PortError as error:
        log.write_line("serve", str(error))
        return EXIT_CONFIGURATION
    # mkdtemp makes the folder for its owner alone: who can reach the sockets can use the model.
    with holder, tempfile.TemporaryDirectory(prefix="hotbed-") as name:
        host, port = holder.getsockname()[:2]
        try:
            plan = make_plan(
                settings,
                tulip,
                ivy,
                directory=Path(name),
                host=host,
                port=port,
                num_cores=num_usable_cores(),
                environment=os.environ,
            )
        except ValueError as error:
            log.write_line("serve", str(error))
            return EXIT_CONFIGURATION

        async def on_ready() -> None:
            service = Service(
                info=await ask_info(plan.replica_addresses[0]),
                served_name=(*settings.served_model_names, settings.model)[0],
                base_url=base_url(host, port, "http" if ivy.tls_certfile is None else "https"),
                num_replicas=len(plan.replicas),
                num_workers=len(plan.workers),
                num_threads=plan.num_threads,
            )
            if settings.log_format == "json":
                log.write_line("serve", f"ready: {service.base_url}")
            else:
                show_page(Console(), service)
            notify()

        supervisor = Supervisor(
            (plan.replicas, plan.workers),
            Path(name),
            limits=RestartLimits(),
            stop_grace_s=ivy.drain_delay_s + settings.drain_timeout_s + _GRACE_MARGIN_S,
            write_line=log.write_line,
            on_ready=on_ready,
        )
        return asyncio.run(supervisor.run())
