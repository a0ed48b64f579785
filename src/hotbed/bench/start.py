"""Starts every system with every model, all at the same time, and says which are there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hotbed.bench.adapters.protocol import Spec
from hotbed.bench.cells import Cell
from hotbed.bench.clients import Clients
from hotbed.bench.members import Member, OfflineMember, ServiceMember
from hotbed.bench.options import BenchOptions, by_system, settings_by_system
from hotbed.bench.process import SystemFailedError, Worker
from hotbed.bench.servers import ServerSpec, running
from hotbed.bench.subjects import Model
from hotbed.bench.systems import REFERENCE, System, installed_version, system
from hotbed.core.errors import ErrorCode, HotbedError

NOT_INSTALLED = "not installed here"
_KV_CACHE = "kv_cache_memory_bytes"


@dataclass(frozen=True, slots=True)
class Lost:
    """A member that cannot be asked any more.

    Attributes:
        system: its name.
        ways: in which it would have been asked.
        message: since when, and what happened.
        log_tail: the last lines that its processes wrote.
    """

    system: str
    ways: frozenset[str]
    message: str
    log_tail: tuple[str, ...]


@dataclass(slots=True)
class Started:
    """The systems with one model.

    Attributes:
        members: those that run, by name and way: ``vllm offline``, ``vllm service``.
        absent: why a system is not there, by its name.
        lost: those that could not be started or failed later, by the same names.
        reference: transformers in fp32; None if it could not be started.
        versions: by system.
    """

    members: dict[str, Member] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    lost: dict[str, Lost] = field(default_factory=dict)
    reference: Member | None = None
    versions: dict[str, str] = field(default_factory=dict)


class Starter:
    """Owns all processes of a run.

    Args:
        options: of the run.
        device_type: ``cpu`` or ``cuda``.
        logs: folder for all logs.
        say: takes a line for the user.

    Raises:
        HotbedError: INVALID_INPUT for a system or a word that is not known.
    """

    def __init__(
        self, options: BenchOptions, device_type: str, logs: Path, say: Callable[[str], None]
    ) -> None:
        self._options = options
        self._device_type = device_type
        self._logs = logs
        self._say = say
        names = options.system_names
        self._systems = [system(name) for name in names]
        self._python = by_system(options.python, "python", names)
        self._urls = by_system(options.url, "url", names)
        self._settings = settings_by_system(options.set, "set", names)
        self._env = settings_by_system(options.env, "env", names)
        self._started: list[Member] = []
        self._clients: Clients | None = None
        self._waiting: list[tuple[Started, str, Member]] = []

    def start(
        self, models: Sequence[Model], plan: Mapping[str, Sequence[Cell]]
    ) -> dict[str, Started]:
        """Start all; `wait` says when each is ready or has failed."""
        versions = {s.name: self._version(s) for s in self._systems}
        if any(cell.way != "offline" for some in plan.values() for cell in some):
            self._clients = Clients(self._options.clients, self._client)
        found = {model.name: Started() for model in models}
        for model in models:
            started = found[model.name]
            reference = self._offline(REFERENCE, model, is_reference=True)
            self._waiting.append((started, "reference", reference))
            for known in self._systems:
                absent = self._why_absent(known, model, versions[known.name])
                if absent is not None:
                    started.absent[known.name] = absent
                    continue
                started.versions[known.name] = versions[known.name] or "unknown"
                for name, member in self._members(known, model, plan[model.name]):
                    self._waiting.append((started, name, member))
        self._say(f"starting {len(self._waiting)} systems at the same time")
        return found

    def close(self) -> None:
        """End all."""
        for member in self._started:
            member.close()
        self._started.clear()
        if self._clients is not None:
            self._clients.close()
            self._clients = None

    def lose(self, started: Started, name: str, member: Member, message: str) -> None:
        """Take a member out and end it."""
        lost = Lost(member.system, member.ways, message, member.log_tail())
        started.lost[name] = lost
        started.members.pop(name, None)
        self.drop(member)

    def drop(self, member: Member) -> None:
        """End one."""
        self._started.remove(member)
        member.close()

    def wait(self) -> None:
        """Return when all that were started are ready, or have failed.

        Raises:
            HotbedError: INTERNAL if the bench's own clients did not start.
        """
        begin = time.monotonic()
        deadline = begin + self._options.start_timeout_s
        if self._clients is not None:
            try:
                self._clients.wait_until_ready(deadline)
            except SystemFailedError as error:
                message = f"the bench's clients did not start: {error} ({self._logs})"
                raise HotbedError(ErrorCode.INTERNAL, message) from error
        for started, name, member in self._waiting:
            try:
                member.wait_until_ready(deadline)
            except SystemFailedError as error:
                self.lose(started, name, member, f"start: {error}")
                continue
            if name == "reference":
                started.reference = member
            else:
                started.members[name] = member
        self._waiting.clear()
        self._say(f"all have started or failed after {time.monotonic() - begin:.0f} s")

    def _members(
        self, known: System, model: Model, cells: Sequence[Cell]
    ) -> list[tuple[str, Member]]:
        made: list[tuple[str, Member]] = []
        # Hotbed's rows from its process are what all others are held to.
        is_asked = known.name == "hotbed" or any(c.way == "offline" for c in cells)
        if known.adapter is not None and is_asked:
            made.append((f"{known.name} offline", self._offline(known, model)))
        asked = [c for c in cells if c.way != "offline"]
        if asked and (known.server is not None or known.name in self._urls):
            made.append((f"{known.name} service", self._service(known, model, asked)))
        return made

    def _why_absent(self, known: System, model: Model, version: str | None) -> str | None:
        if self._device_type not in known.devices:
            return f"not measured on {self._device_type}"
        if model.task not in known.tasks:
            return "not measured with models that score"
        if version is None:
            return NOT_INSTALLED
        return None

    def _version(self, known: System) -> str | None:
        if known.name in self._urls:
            return "unknown"
        return installed_version(known, self._python_of(known), self._environment(known))

    def _offline(self, known: System, model: Model, *, is_reference: bool = False) -> Member:
        assert known.adapter is not None, "bug: it has no process of its own"
        name = "reference" if is_reference else known.name
        spec = Spec(
            folder=model.folder,
            task=model.task,
            device=self._device_type,
            max_tokens=model.max_tokens,
            num_threads=self._options.threads,
            cache=str(self._cache(name, model, "offline")),
            reference=is_reference,
            options={} if is_reference else self._options_of(known),
        )
        member = OfflineMember(
            name,
            python=sys.executable if is_reference else self._python_of(known),
            adapter=known.adapter,
            spec=spec,
            environment=dict(os.environ) if is_reference else self._environment(known),
            log=self._logs / model.name / f"{name}-offline.log",
            call_timeout_s=self._options.call_timeout_s,
        )
        self._started.append(member)
        return member

    def _service(self, known: System, model: Model, cells: Sequence[Cell]) -> Member:
        assert self._clients is not None, "bug: there are cells that clients ask in"
        if known.name in self._urls:
            server = running(self._urls[known.name])
        else:
            assert known.server is not None, "bug: it has no server"
            server = known.server(
                ServerSpec(
                    python=self._python_of(known),
                    folder=model.folder,
                    device=self._device_type,
                    max_tokens=model.max_tokens,
                    most_tokens=max(c.n * c.tokens * c.concurrency for c in cells),
                    num_threads=self._options.threads,
                    options=self._options_of(known),
                    num_workers=self._options.workers,
                )
            )
        environment = self._environment(known)
        if known.name == "vllm":
            environment.setdefault("VLLM_CACHE_ROOT", str(self._cache("vllm", model, "service")))
        member = ServiceMember(
            known.name,
            server,
            clients=self._clients,
            environment=environment,
            log=self._logs / model.name / f"{known.name}-service.log",
            call_timeout_s=self._options.call_timeout_s,
        )
        self._started.append(member)
        return member

    def _options_of(self, known: System) -> dict[str, str]:
        options: dict[str, str] = {}
        if known.name == "hotbed" and self._options.kernel_dir is not None:
            options["kernel_dir"] = str(self._options.kernel_dir.absolute())
        if known.name == "vllm":
            options[_KV_CACHE] = str(int(self._options.gpu_memory_gib * 2**30))
        return options | self._settings.get(known.name, {})

    def _client(self, index: int) -> Worker:
        log = self._logs / f"client-{index}.log"
        return Worker(sys.executable, "hotbed.bench.client", [], os.environ, log)

    def _cache(self, name: str, model: Model, way: str) -> Path:
        """A folder of its own: two processes of a system that compile do not get in each other's
        way.
        """
        parts = (self._options.work.absolute(), "cache", model.name, name)
        shared = name in ("onnxruntime", "fastembed")
        return Path(*parts[:3], "onnx") if shared else Path(*parts, way)

    def _python_of(self, known: System) -> str:
        return self._python.get(known.name, sys.executable)

    def _environment(self, known: System) -> dict[str, str]:
        return {**os.environ, **self._env.get(known.name, {})}
