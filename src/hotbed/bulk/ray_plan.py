"""How many workers a Ray cluster gets for a job, and what each of them holds."""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from hotbed.bulk.local import ModelOptions
from hotbed.core.errors import invalid

_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Attributes:
    num_workers: of the job.
    num_cpus: logical CPUs that each holds.
    num_gpus: the same for GPUs, 0 or 1.
    """

    num_workers: int
    num_cpus: int
    num_gpus: int


def make_plan(
    nodes: list[dict[str, float]], options: ModelOptions, num_workers: int | None
) -> tuple[Plan, ModelOptions]:
    """One worker a GPU, or where none is wanted or there, one for `options.threads` CPUs.

    Args:
        nodes: resources of each that is alive.
        options: of the model; without threads a worker takes as many CPUs as the smallest node has.
        num_workers: None: as many as fit now.

    Returns:
        The plan, and the options with the threads of a worker on a CPU.

    Raises:
        HotbedError: INVALID_INPUT if no node has what a worker needs.
    """
    if options.device.startswith("cuda:"):
        raise invalid("--engine ray picks the GPU of each worker: give --device cuda", "device")
    num_gpus = int(sum(node.get("GPU", 0) for node in nodes))
    if options.device != "cpu" and num_gpus:
        return Plan(num_workers or num_gpus, 1, 1), options
    if options.device == "cuda":
        raise invalid("--device cuda: the cluster has no GPU", "device")
    cpus = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
    threads = options.threads or min(cpus, default=0)
    fitting = sum(count // threads for count in cpus) if threads else 0
    if not fitting:
        raise invalid(f"no node of the cluster has the {threads or 1} CPUs that a worker needs")
    return Plan(num_workers or fitting, threads, 0), dataclasses.replace(options, threads=threads)


@contextmanager
def connected(address: str | None) -> Iterator[list[dict[str, float]]]:
    """Use a Ray cluster; resources of each node that is alive.

    Args:
        address: ``auto``, ``host:port``; None: what RAY_ADDRESS says, else the cluster that runs on
            this machine, else one of this machine alone. A connection that exists is used.

    Raises:
        HotbedError: INVALID_INPUT if it cannot be reached.
    """
    if address is not None and address.startswith("ray://"):
        raise invalid("--address ray://: run the job on a machine of the cluster, with host:port")
    ours = not ray.is_initialized()
    if ours:
        _check_reachable(address)
        try:
            ray.init(address=address, logging_level=logging.WARNING)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise invalid(f"--address {address or '(unset)'}: {error}", "address") from None
    try:
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        yield [node["Resources"] for node in nodes if node["Alive"]]
    finally:
        if ours:
            ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Say at once what Ray says after minutes of trying."""
    host, colon, port = (address or "").rpartition(":")
    if not (colon and port.isdecimal()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise invalid(f"--address {address}: {error}", "address") from None
