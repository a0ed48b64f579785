"""The service that `bench.chaos` torments: hotbed's supervisor and gateway over fake replicas.

The plan is that of `hotbed serve`; only what a replica runs is another program, the fake engine
with faults of its own. Prints the port once everything is ready.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from hotbed.checkpoint.load import load_checkpoint
from hotbed.ivy.settings import IvySettings
from hotbed.serve.output import OutputLog
from hotbed.serve.plan import make_plan
from hotbed.serve.port import reserve_port
from hotbed.serve.restarts import RestartLimits
from hotbed.serve.settings import ServeSettings
from hotbed.serve.supervisor import Supervisor
from hotbed.tulip.settings import TulipSettings

DIMENSIONS = 32


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder or package; only its tokenizer runs")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--faults", default="")
    parser.add_argument("--step-timeout-s", type=float, default=2.0)
    parser.add_argument("--local-stream", action="store_true")
    options = parser.parse_args()
    checkpoint = load_checkpoint(options.model, offline=True)
    settings = ServeSettings(
        model=options.model, replicas=options.replicas, workers=options.workers, port=0,
        offline=True, device="cpu", min_ready_replicas=1,
    )  # fmt: skip
    log = OutputLog()
    holder = reserve_port(settings.host, settings.port)
    with holder, tempfile.TemporaryDirectory(prefix="hotbed-chaos-") as folder:
        host, port = holder.getsockname()[:2]
        plan = make_plan(
            settings, TulipSettings(), IvySettings(), directory=Path(folder), host=host, port=port,
            num_cores=2, environment=os.environ,
        )  # fmt: skip
        fakes = tuple(
            replace(
                spec,
                command=(
                    sys.executable, "-m", "hotbed.tulip.testing", f"--listen={address}",
                    f"--name={checkpoint.name}", f"--dimensions={DIMENSIONS}", "--step-ms=2",
                    "--token-us=5", f"--max-tokens={checkpoint.max_tokens}",
                    f"--vocab-size={checkpoint.config.vocab_size}", f"--faults={options.faults}",
                    f"--step-timeout-s={options.step_timeout_s}",
                    *(["--local-stream"] if options.local_stream else []),
                ),
            )
            for spec, address in zip(plan.replicas, plan.replica_addresses, strict=True)
        )  # fmt: skip

        async def on_ready() -> None:
            print(f"{host} {port}", flush=True)

        supervisor = Supervisor(
            (fakes, plan.workers), Path(folder), limits=RestartLimits(), stop_grace_s=20.0,
            write_line=log.write_line, on_ready=on_ready,
        )  # fmt: skip
        return asyncio.run(supervisor.run())


if __name__ == "__main__":
    sys.exit(main())
