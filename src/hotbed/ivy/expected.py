"""What a replica must agree with before it is used: the checkpoint and the other replicas."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hotbed.core.model_info import ModelInfo, Task


class RefusedError(Exception):
    """The replica works but must not be used: it serves something else."""


@dataclass(frozen=True, slots=True)
class ExpectedModel:
    """What the gateway's own checkpoint says; a replica must agree, or its rows would be wrong."""

    name: str
    vocab_size: int
    max_tokens: int
    task: Task = "embed"

    def check(self, info: ModelInfo) -> None:
        """Raises RefusedError if the replica serves another model."""
        if info.task != self.task:
            raise RefusedError(f"its task is {info.task!r}, the gateway's {self.task!r}")
        if _last_component(info.name) != _last_component(self.name):
            raise RefusedError(f"it serves {info.name!r}, the gateway {self.name!r}")
        for name in ("vocab_size", "max_tokens"):
            theirs, ours = getattr(info, name), getattr(self, name)
            if theirs != ours:
                raise RefusedError(f"its {name} is {theirs}, the gateway's {ours}")


def check_same(info: ModelInfo, others: ModelInfo) -> None:
    """Raises RefusedError if the replica's rows could differ from those of the others."""
    for field in fields(ModelInfo):
        theirs, ours = getattr(info, field.name), getattr(others, field.name)
        # The name may differ in how it was given; the device may differ freely.
        if field.name not in ("name", "device") and theirs != ours:
            raise RefusedError(f"its {field.name} is {theirs}, the other replicas' {ours}")


def _last_component(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()
