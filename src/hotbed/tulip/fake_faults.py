"""Faults that a fake engine has at random, so that a whole service can be tested under them."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, fields
from typing import Self

from hotbed.core.step import EngineDeadError


class OutOfMemoryError(RuntimeError):
    """Stands in for torch's error, which Tulip knows by the name of its class."""


@dataclass(frozen=True, kw_only=True)
class FaultRates:
    """How often a step has which fault, each from 0 to 1.

    Raises:
        ValueError: a rate is out of its range.
    """

    error: float = 0.0
    """The step fails if it has more than one sequence, so that its halves can succeed."""
    oom: float = 0.0
    """The step is out of memory, also one of a single sequence."""
    stall: float = 0.0
    """The step takes half a second longer."""
    hang: float = 0.0
    """The step never ends."""
    death: float = 0.0
    """The engine says that it is dead."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 <= getattr(self, field.name) <= 1:
                raise ValueError(
                    f"fault {field.name} must be 0 to 1, got {getattr(self, field.name)}"
                )

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``error=0.1,hang=0.001``.

        Raises:
            ValueError: a name is unknown or a rate no number from 0 to 1.
        """
        rates = {}
        names = [field.name for field in fields(cls)]
        for pair in filter(None, text.split(",")):
            name, _, rate = pair.partition("=")
            if name not in names:
                raise ValueError(f"fault must be one of {', '.join(names)}, got {name!r}")
            rates[name] = float(rate)
        return cls(**rates)


class Faults:
    """Draws faults; used by one thread.

    Args:
        rates: of each step.
        seed: of the draws; None: another sequence every time.
    """

    STALL_S = 0.5

    def __init__(self, rates: FaultRates, seed: int | None = None) -> None:
        self._rates = rates
        self._random = random.Random(seed)  # noqa: S311

    def before_step(self, num_sequences: int) -> None:
        """Do what is drawn for a step; raises the step's failure."""
        rates = self._rates
        if self._draw(rates.hang):
            threading.Event().wait()
        if self._draw(rates.stall):
            time.sleep(self.STALL_S)
        if self._draw(rates.death):
            raise EngineDeadError("the fake engine died at random")
        if self._draw(rates.oom):
            raise OutOfMemoryError("out of memory at random")
        if num_sequences > 1 and self._draw(rates.error):
            raise RuntimeError("failed at random")

    def _draw(self, rate: float) -> bool:
        return rate > 0 and self._random.random() < rate
