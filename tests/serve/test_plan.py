"""How many processes, with how many threads, sockets and variables."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from hotbed.ivy.settings import IvySettings
from hotbed.serve.plan import Plan, default_workers, make_plan
from hotbed.serve.settings import IVY_FIELDS_OF_SERVE, TULIP_FIELDS_OF_SERVE, ServeSettings
from hotbed.tulip.settings import TulipSettings

ENVIRONMENT = {"PATH": "/bin"}


def plan(
    num_cores: int = 8,
    environment: dict[str, str] = ENVIRONMENT,
    tulip: TulipSettings | None = None,
    ivy: IvySettings | None = None,
    **settings: Any,
) -> Plan:
    return make_plan(
        ServeSettings(**settings),
        tulip or TulipSettings(),
        ivy or IvySettings(),
        directory=Path("/run/x"),
        host="127.0.0.1",
        port=8123,
        num_cores=num_cores,
        environment=environment,
    )


@pytest.mark.parametrize(("num_cores", "workers"), [(1, 1), (2, 1), (4, 2), (8, 4), (64, 4)])
def test_default_number_of_workers(num_cores: int, workers: int) -> None:
    assert default_workers(num_cores) == workers
    assert len(plan(num_cores=num_cores).workers) == workers


@pytest.mark.parametrize(
    ("num_cores", "replicas", "threads", "expected"),
    [(8, 1, None, 8), (8, 2, None, 4), (8, 3, None, 2), (2, 4, None, 1), (8, 2, 3, 3)],
)
def test_replicas_share_the_cores(
    num_cores: int, replicas: int, threads: int | None, expected: int
) -> None:
    # Two replicas with a thread a core each are many times slower than with half of them.
    made = plan(num_cores=num_cores, replicas=replicas, threads=threads)
    assert made.num_threads == expected
    assert all(f"--num-threads={expected}" in child.command for child in made.replicas)


def test_threads_are_left_to_the_engine_off_the_cpu() -> None:
    made = plan(device="cuda:0")
    assert made.num_threads is None
    assert not [word for word in made.replicas[0].command if word.startswith("--num-threads")]


def test_every_worker_knows_every_replica_and_the_shared_port() -> None:
    made = plan(replicas=2, workers=3)
    assert [child.name for child in (*made.replicas, *made.workers)] == [
        "tulip-0", "tulip-1", "ivy-0", "ivy-1", "ivy-2",
    ]  # fmt: skip
    for i, child in enumerate(made.replicas):
        assert child.command[:3] == (sys.executable, "-m", "hotbed.tulip")
        assert f"--listen=unix:/run/x/tulip-{i}.sock" in child.command
    for child in made.workers:
        assert child.command[:3] == (sys.executable, "-m", "hotbed.ivy")
        assert {
            "--replicas=unix:/run/x/tulip-0.sock",
            "--replicas=unix:/run/x/tulip-1.sock",
            "--port=8123",
        } <= set(child.command)


def test_ready_asks_for_all_replicas_unless_told_otherwise() -> None:
    assert not any("min-ready" in part for part in plan(replicas=2).workers[0].command)
    asked = plan(replicas=2, min_ready_replicas=1).workers[0].command
    assert "--min-ready-replicas=1" in asked


def test_ports_of_their_own_are_counted_up() -> None:
    made = plan(replicas=2, workers=2, worker_ports=9100, replica_metrics_ports=9200)
    assert "--own-port=9101" in made.workers[1].command
    assert "--metrics-port=9201" in made.replicas[1].command
    with pytest.raises(ValueError, match="there is none above 65535"):
        plan(workers=2, worker_ports=65535)


def test_options_of_the_rooms_reach_them() -> None:
    made = plan(tulip=TulipSettings(max_step_tokens=99), ivy=IvySettings(max_inputs=7))
    assert "--max-step-tokens=99" in made.replicas[0].command
    assert "--max-inputs=7" in made.workers[0].command


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("auto", ("auto:0", "auto:1")),
        ("cuda", ("cuda:0", "cuda:1")),
        ("cuda:1", ("cuda:1", "cuda:1")),
        ("cpu", ("cpu", "cpu")),
    ],
)
def test_replicas_each_take_a_gpu_of_their_own(asked: str, expected: tuple[str, str]) -> None:
    made = plan(device=asked, replicas=2)
    for child, device in zip(made.replicas, expected, strict=True):
        assert (f"--device={device}" in child.command) != (device == TulipSettings().device)


def test_tokenizer_pools_are_off_in_workers_unless_the_user_says_otherwise() -> None:
    made = plan(environment={"RAYON_NUM_THREADS": "2"})
    assert made.workers[0].environment == {
        "RAYON_NUM_THREADS": "2",
        "TOKENIZERS_PARALLELISM": "false",
    }


def test_what_the_service_decides_is_named_as_in_the_records() -> None:
    assert {field.name for field in fields(TulipSettings)} >= TULIP_FIELDS_OF_SERVE
    assert {field.name for field in fields(IvySettings)} >= IVY_FIELDS_OF_SERVE


def test_replicas_share_a_device_as_many_as_asked() -> None:
    made = plan(device="cuda", replicas=5, replicas_per_device=2)
    devices = [word for child in made.replicas for word in child.command if "--device=" in word]
    assert devices == [f"--device=cuda:{n}" for n in (0, 0, 1, 1, 2)]


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_sharing_a_device_is_refused_where_no_devices_are_counted(device: str) -> None:
    with pytest.raises(ValueError, match="replicas_per_device"):
        ServeSettings(device=device, replicas=2, replicas_per_device=2)
