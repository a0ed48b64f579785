"""What is measured and where: the models and the device, as `hotbed.bench.prepare` finds them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotbed.bench.cost import Ceilings, Cost
from hotbed.bench.options import BenchOptions
from hotbed.bench.process import SystemFailedError, Worker
from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.core.errors import ErrorCode, HotbedError, invalid

_TIMEOUT_S = 600.0
_GPU_MODELS = ("pplx-embed-0.6b", "bge-m3", "qwen3-embedding-4b", "qwen3-reranker-0.6b")


@dataclass(frozen=True, slots=True)
class Model:
    """A model.

    Attributes:
        name: for the rows.
        folder: that every system loads.
        task: ``embed`` or ``score``.
        max_tokens: longest input.
        tokenizer: path of its tokenizer.json.
        random_weights: whether it is a shape with seeded random weights.
        cost: of a pass.
    """

    name: str
    folder: str
    task: str
    max_tokens: int
    tokenizer: str
    random_weights: bool
    cost: Cost


@dataclass(frozen=True, slots=True)
class Device:
    """A device.

    Attributes:
        type: ``cpu`` or ``cuda``.
        name: the product's.
        driver: of a GPU.
        torch: its version.
        dtype: that models compute in.
        ceilings: as measured now.
    """

    type: str
    name: str
    driver: str | None
    torch: str
    dtype: str
    ceilings: Ceilings


def prepare(
    options: BenchOptions, logs: Path, say: Callable[[str], None]
) -> tuple[Device, list[Model]]:
    """Write the models with random weights, read all, measure the device.

    Raises:
        HotbedError: INVALID_INPUT for a model that cannot be used; INTERNAL otherwise.
    """
    log = logs / "prepare.log"
    worker = Worker(sys.executable, "hotbed.bench.prepare", [], os.environ, log)
    common = {"device": options.device}
    try:
        worker.wait_until_ready(_TIMEOUT_S)
        names = options.model
        if not names:
            found = worker.ask(common | {"do": "device-type"}, _TIMEOUT_S)["type"]
            names = _GPU_MODELS if found == "cuda" else (DEFAULT_MODEL,)
        models = []
        for name in names:
            say(f"preparing {name}")
            asked: dict[str, Any] = {
                "do": "model",
                "model": name,
                "tiny": options.size == "tiny",
                "work": str(options.work.absolute()),
                "tokenizer": _path(options.tokenizer),
                "texts": _path(options.texts),
            }
            answer = worker.ask(common | asked, _TIMEOUT_S)
            cost = Cost(**answer.pop("cost"))
            models.append(Model(name=Path(name).name.lower(), cost=cost, **answer))
        _check_names(models)
        facts = worker.ask(common | {"do": "device"}, _TIMEOUT_S)
        ceilings = Ceilings(**facts.pop("ceilings"))
        return Device(ceilings=ceilings, **facts), models
    except SystemFailedError as error:
        raise HotbedError(ErrorCode.INTERNAL, f"preparing failed: {error} ({log})") from error
    finally:
        worker.close()


def _check_names(models: Sequence[Model]) -> None:
    """Rows name a model by the last part of its path alone."""
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise invalid(
                f"--model: two models would be called {name!r} in the rows; measure them apart, or"
                " rename a folder",
                "model",
            )


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
