"""Commands that serve: `hotbed serve`, and its parts by themselves, `tulip` and `ivy`."""

from __future__ import annotations

import re
from typing import Annotated

from cyclopts import Group, Parameter

from hotbed.cli.application import app, log_to_stderr
from hotbed.ivy.settings import IvySettings
from hotbed.serve.settings import IVY_FIELDS_OF_SERVE, TULIP_FIELDS_OF_SERVE, ServeSettings
from hotbed.tulip.settings import TulipSettings


def _but(names: frozenset[str]) -> re.Pattern[str]:
    """Matches every field's name but these."""
    return re.compile(f"^(?!({'|'.join(sorted(names))})$)")


@app.command
def serve(
    settings: Annotated[ServeSettings, Parameter(name="*")] = ServeSettings(),  # noqa: B008
    *,
    tulip: Annotated[
        TulipSettings,
        Parameter(group=Group("For every replica", sort_key=1), parse=_but(TULIP_FIELDS_OF_SERVE)),
    ] = TulipSettings(),  # noqa: B008
    ivy: Annotated[
        IvySettings,
        Parameter(group=Group("For every worker", sort_key=2), parse=_but(IVY_FIELDS_OF_SERVE)),
    ] = IvySettings(),  # noqa: B008
) -> int:
    """Serve a model on this machine: HTTP workers in front of batching replicas."""
    from hotbed.serve.run import run  # noqa: PLC0415

    return run(settings, tulip, ivy)


@app.command
def tulip(
    settings: Annotated[TulipSettings, Parameter(name="*")] = TulipSettings(),  # noqa: B008
) -> int:
    """Run one batching gRPC server with one model on one device."""
    from hotbed.tulip.__main__ import run  # noqa: PLC0415

    log_to_stderr(settings.log_level)
    return run(settings)


@app.command
def ivy(
    settings: Annotated[IvySettings, Parameter(name="*")] = IvySettings(),  # noqa: B008
) -> int:
    """Run one HTTP gateway in front of replicas that run already."""
    from hotbed.ivy.__main__ import run  # noqa: PLC0415

    log_to_stderr("info")
    return run(settings)
