"""Which processes make up a service, with which settings and environment. Starts nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hotbed.ivy.settings import IvySettings
from hotbed.serve.arguments import to_arguments
from hotbed.serve.child import ChildSpec
from hotbed.serve.settings import COUNTED_DEVICES, MAX_PORT, ServeSettings
from hotbed.tulip.settings import TulipSettings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_DEFAULT_WORKERS = 4
_WORKER_ENVIRONMENT = {
    # Tokenizer libraries would start a thread a core in each worker and fight.
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The processes of a service.

    Attributes:
        replicas: Tulip's, to be ready before the workers start.
        workers: Ivy's.
        replica_addresses: gRPC addresses of the replicas, in their order.
        num_threads: CPU threads of a replica; None leaves it to the engine.
    """

    replicas: tuple[ChildSpec, ...]
    workers: tuple[ChildSpec, ...]
    replica_addresses: tuple[str, ...]
    num_threads: int | None


def make_plan(
    settings: ServeSettings,
    tulip: TulipSettings,
    ivy: IvySettings,
    *,
    directory: Path,
    host: str,
    port: int,
    num_cores: int,
    environment: Mapping[str, str],
) -> Plan:
    """Lay out a service.

    Args:
        settings: of the service.
        tulip: what every replica gets besides; fields in `TULIP_FIELDS_OF_SERVE` do not count.
        ivy: what every worker gets besides; fields in `IVY_FIELDS_OF_SERVE` do not count.
        directory: private folder for the replicas' sockets.
        host: numeric address that the workers bind.
        port: that the workers share; not 0.
        num_cores: cores that this machine lends the service.
        environment: of the supervisor; children get it with a few additions.

    Raises:
        ValueError: a value of `settings` is refused by the records of the rooms.
    """
    num_workers = settings.workers or default_workers(num_cores)
    num_threads = settings.threads
    if num_threads is None and settings.device in ("auto", "cpu"):
        num_threads = max(1, num_cores // settings.replicas)
    addresses = tuple(f"unix:{directory}/tulip-{i}.sock" for i in range(settings.replicas))
    tulips = [
        replace(
            tulip,
            model=settings.model,
            revision=settings.revision,
            offline=settings.offline,
            task=settings.task,
            listen=address,
            local_stream=tulip.tls_cert is None,
            device=_device(settings.device, i // settings.replicas_per_device),
            dtype=settings.dtype,
            invariant=settings.invariant,
            num_threads=num_threads,
            drain_timeout_s=settings.drain_timeout_s,
            metrics_port=_own_port(settings.replica_metrics_ports, i),
            log_format=settings.log_format,
        )
        for i, address in enumerate(addresses)
    ]
    ivies = [
        replace(
            ivy,
            model=settings.model,
            revision=settings.revision,
            offline=settings.offline,
            task=settings.task,
            served_model_names=settings.served_model_names,
            replicas=addresses,
            min_ready_replicas=settings.min_ready_replicas,
            host=host,
            port=port,
            own_port=_own_port(settings.worker_ports, i),
            drain_timeout_s=settings.drain_timeout_s,
            log_format=settings.log_format,
        )
        for i in range(num_workers)
    ]
    return Plan(
        replicas=tuple(
            _child(f"tulip-{i}", "hotbed.tulip", record, environment)
            for i, record in enumerate(tulips)
        ),
        workers=tuple(
            _child(f"ivy-{i}", "hotbed.ivy", record, {**_WORKER_ENVIRONMENT, **environment})
            for i, record in enumerate(ivies)
        ),
        replica_addresses=addresses,
        num_threads=num_threads,
    )


def default_workers(num_cores: int) -> int:
    """Ivy processes where the user does not say."""
    return min(MAX_DEFAULT_WORKERS, max(1, num_cores // 2))


def _child(
    name: str, module: str, record: DataclassInstance, environment: Mapping[str, str]
) -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-m", module, *to_arguments(record)), environment)


def _device(asked: str, number: int) -> str:
    """``cuda`` and ``auto`` count the devices up; another one is meant as it is."""
    return f"{asked}:{number}" if asked in COUNTED_DEVICES else asked


def _own_port(first: int | None, index: int) -> int | None:
    if first is None:
        return None
    if first + index > MAX_PORT:
        raise ValueError(f"ports from {first} on: there is none above {MAX_PORT}")
    return first + index
