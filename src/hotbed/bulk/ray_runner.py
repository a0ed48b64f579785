"""Makes a job's parts on a Ray cluster: one actor a GPU, or on CPUs one for some cores.

An actor reads, computes and writes whole parts, so rows cross no network but that to the storage,
and what is lost with an actor is made again by another, with the same bytes. The job's list of
parts is kept here alone. Ray Data is not used: its unit would be the part too, its actors would
stand still while they read the next one, and it has no list of what is done to resume from.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from hotbed.bulk.local import ModelOptions
from hotbed.bulk.manifest import Manifest
from hotbed.bulk.parts import Written
from hotbed.bulk.policies import Counts
from hotbed.bulk.ray_plan import Plan
from hotbed.bulk.ray_worker import News, PartWorker
from hotbed.bulk.recipe import Recipe
from hotbed.core.errors import ErrorCode, HotbedError

_LOG = logging.getLogger("hotbed.bulk")
_PARTS_AHEAD = 2
"""Given to a worker at a time: it reads the second while its device computes the first."""
_MOST_LOSSES = 3
"""A part that was lost so often with its worker is not given to another."""
_WARN_AFTER_S = 30.0
_NO_WORKER = "no worker runs yet: the cluster has no room for one, or it still loads the model"


@dataclass(eq=False)
class _Worker:
    actor: Any
    asked: Any
    """Reference to the answer that is waited for: to `work` first, then to `news`."""
    parts: list[int] = field(default_factory=list)
    """That it has been given and has not finished, in order."""
    num_rows: int = 0
    """Gone through of the first of them."""
    works: bool = False
    idle_s: float = 0.0


class RayRunner:
    """Implements `Runner`.

    Args:
        options: of the model.
        plan: of the workers.

    Raises:
        HotbedError: INVALID_INPUT if the first worker cannot find the model.
    """

    def __init__(self, options: ModelOptions, plan: Plan) -> None:
        self._options = options
        self._plan = plan
        self._folder = os.getcwd()
        self._first: Any = self._actor()
        self.recipe: Recipe = _ask(self._first.recipe.remote())
        self._workers: list[_Worker] = []
        self._todo: deque[int] = deque()
        self._losses: Counter[int] = Counter()
        self._losses_in_a_row = 0

    def start(self, step_tokens: int) -> int:
        """See `Runner`."""
        chosen: int = _ask(self._first.start.remote(step_tokens))
        return chosen

    def run(
        self, folder: Path, job: Manifest, numbers: Iterable[int]
    ) -> Generator[Written, None, None]:
        """See `Runner`; parts are finished in no order."""
        self._todo.extend(numbers)
        for index in range(min(self._plan.num_workers, len(self._todo))):
            self._add(self._first if index == 0 else self._actor(), folder, job)
        while self._todo or any(worker.parts for worker in self._workers):
            asked = {worker.asked: worker for worker in self._workers}
            ready, _ = ray.wait(list(asked), timeout=_WARN_AFTER_S)
            if not ready and not any(worker.works for worker in self._workers):
                _LOG.warning(_NO_WORKER)
            for reference in ready:
                worker = asked[reference]
                try:
                    news = _answer(reference)
                except RayActorError as error:
                    yield self._lost(worker, error)
                    self._add(self._actor(), folder, job)
                    continue
                worker.asked = worker.actor.news.remote()
                if isinstance(news, News):
                    yield from self._take_in(worker, news)
                else:  # the answer to `work`
                    worker.works = True
            self._deal()

    def idle_s(self) -> float | None:
        """See `Runner`."""
        working = [worker.idle_s for worker in self._workers if worker.works]
        return sum(working) / len(working) if working else None

    def close(self) -> None:
        """See `Runner`."""
        for actor in [self._first, *(worker.actor for worker in self._workers)]:
            ray.kill(actor)
        self._workers = []

    def _actor(self) -> Any:
        remote: Any = ray.remote(PartWorker)
        return remote.options(
            num_cpus=self._plan.num_cpus,
            num_gpus=self._plan.num_gpus,
            max_restarts=0,  # what it was given is dealt anew here
            max_concurrency=2,
            scheduling_strategy="SPREAD",
        ).remote(self._folder, self._options)

    def _add(self, actor: Any, folder: Path, job: Manifest) -> None:
        self._workers.append(_Worker(actor, actor.work.remote(folder, job)))

    def _take_in(self, worker: _Worker, news: News) -> Iterable[Written]:
        worker.idle_s = news.idle_s
        for written in news.written:
            worker.num_rows += written.num_rows
            if written.part is not None:
                worker.parts.remove(written.part.number)
                worker.num_rows = 0
                self._losses_in_a_row = 0
            yield written
        if news.failed is not None:
            raise news.failed

    def _deal(self) -> None:
        """One part each first, so that none stands still while another has two."""
        for most in range(1, _PARTS_AHEAD + 1):
            for worker in self._workers:
                if self._todo and worker.works and len(worker.parts) < most:
                    number = self._todo.popleft()
                    worker.parts.append(number)
                    worker.actor.take.remote([number])

    def _lost(self, worker: _Worker, error: RayActorError) -> Written:
        """Take its parts back; what progress loses by it.

        Raises:
            HotbedError: INTERNAL if a part was lost too often, or nothing but losses happens.
        """
        self._workers.remove(worker)
        ray.kill(worker.actor)  # also one that is only out of reach
        self._losses.update(worker.parts[:1])
        self._losses_in_a_row += 1
        why = _why(error)
        for number in worker.parts[:1]:
            if self._losses[number] == _MOST_LOSSES:
                raise HotbedError(
                    ErrorCode.INTERNAL,
                    f"part {number} was lost with its worker {_MOST_LOSSES} times; last: {why}",
                )
        if self._losses_in_a_row > 2 * self._plan.num_workers + 1:
            raise HotbedError(
                ErrorCode.INTERNAL,
                f"{self._losses_in_a_row} workers were lost and no part made; last: {why}",
            )
        _LOG.warning("a worker was lost; its %d parts go to others", len(worker.parts))
        self._todo.extendleft(reversed(worker.parts))
        return Written(Counts(), -worker.num_rows, None)


def _ask(reference: Any) -> Any:
    """What the first worker answers; says so while there is none."""
    while not ray.wait([reference], timeout=_WARN_AFTER_S)[0]:
        _LOG.warning(_NO_WORKER)
    try:
        return _answer(reference)
    except RayActorError as error:
        raise HotbedError(ErrorCode.UNAVAILABLE, f"a worker was lost: {_why(error)}") from None


def _answer(reference: Any) -> Any:
    """What an actor answers; a HotbedError of it is raised as such."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, HotbedError):
            raise error.cause from None
        raise HotbedError(ErrorCode.INTERNAL, f"a worker failed: {error}") from error


def _why(error: RayActorError) -> str:
    """What Ray says of a loss, in a line."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
