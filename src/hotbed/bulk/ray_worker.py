"""A worker of a job on a Ray cluster: an actor with a model on a device, which makes whole parts.

It imports no Ray, so that what it does can be tested without.
"""

from __future__ import annotations

import os
import platform
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from hotbed.bulk.local import LocalModel, ModelOptions
from hotbed.bulk.manifest import Manifest
from hotbed.bulk.parts import Written
from hotbed.bulk.recipe import Recipe
from hotbed.bulk.runner import InProcess
from hotbed.core.errors import ErrorCode, HotbedError, invalid


@dataclass(slots=True)
class News:
    """What a worker has done since it was asked last.

    Attributes:
        written: windows, in order.
        failed: why it has stopped, if it has.
        idle_s: in all, seconds in which its device had nothing to do.
    """

    written: list[Written] = field(default_factory=list)
    failed: HotbedError | None = None
    idle_s: float = 0.0


class PartWorker:
    """Its methods are called by two threads at most: `news` waits while others are called.

    Args:
        folder: working directory of who runs the job; paths are relative to it.
        options: of the model.

    """

    def __init__(self, folder: str, options: ModelOptions) -> None:
        self._folder = folder
        self._options = options
        self._model: LocalModel | None = None
        self._runner: InProcess | None = None
        self._numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[Written | HotbedError] = queue.SimpleQueue()

    def recipe(self) -> Recipe:
        """Of the vectors that it makes.

        Raises:
            HotbedError: INVALID_INPUT if the folder or the model is not on this machine.
        """
        if self._model is None:
            try:
                os.chdir(self._folder)
            except OSError as error:
                raise invalid(
                    f"worker on {platform.node()}: {self._folder}: {error.strerror}. Inputs, "
                    "--out, the model and the working directory must lie at one path everywhere"
                ) from None
            self._model = LocalModel(self._options)
        return self._model.recipe

    def start(self, step_tokens: int) -> int:
        """Load the model, once; see `Runner.start`."""
        self.recipe()
        assert self._model is not None, "a recipe without a model: this is a bug"
        if self._runner is None:
            self._runner = InProcess(self._model.load_backend)
            self._step_tokens = self._runner.start(step_tokens)
        return self._step_tokens

    def work(self, folder: Path, job: Manifest) -> str:
        """Begin to make the parts that `take` names; the name of the machine.

        Raises:
            HotbedError: INVALID_INPUT if its vectors do not belong to the job.
        """
        made = self.recipe().fingerprint
        if made != job.recipe.fingerprint:
            raise invalid(
                f"worker on {platform.node()}: its vectors have fingerprint {made}, the job's "
                f"{job.recipe.fingerprint}: another model, tokenizer or type of compute"
            )
        self.start(job.settings.step_tokens)
        threading.Thread(target=self._work, args=(folder, job), name="parts", daemon=True).start()
        return platform.node()

    def take(self, numbers: Sequence[int]) -> None:
        """Make these parts too, after those that it was given before."""
        for number in numbers:
            self._numbers.put(number)

    def news(self) -> News:
        """What is new; waits until there is something."""
        made = [self._made.get()]
        while not self._made.empty():
            made.append(self._made.get())
        assert self._runner is not None, "news without work: this is a bug"
        news = News(idle_s=self._runner.idle_s() or 0.0)
        for one in made:
            if isinstance(one, HotbedError):
                news.failed = one
            else:
                news.written.append(one)
        return news

    def _work(self, folder: Path, job: Manifest) -> None:
        assert self._runner is not None, "work without a model: this is a bug"
        try:
            while True:
                numbers = self._queued(self._numbers.get())
                with closing(self._runner.run(folder, job, numbers)) as made:
                    for written in made:
                        self._made.put(written)
        except HotbedError as error:
            self._made.put(error)
        except BaseException as error:
            self._made.put(_unexpected(error))
            raise

    def _queued(self, number: int) -> Iterator[int]:
        """This part and those that are queued when they are wanted. Then it ends, as a pipeline
        gives its last windows only at its end.
        """
        yield number
        while True:
            try:
                yield self._numbers.get_nowait()
            except queue.Empty:
                return


def _unexpected(error: BaseException) -> HotbedError:
    if isinstance(error, OSError):  # of inputs it is another error by now
        said = f"worker on {platform.node()}: --out: {error.strerror or error}"
        return HotbedError(ErrorCode.UNAVAILABLE, said)
    return HotbedError(
        ErrorCode.INTERNAL,
        f"worker on {platform.node()}: {type(error).__name__}; its log has more",
    )
