"""What was measured of one model on one device, kept in the user's cache folder.

`hotbed doctor --calibrate` writes it (`calibrate`), the engine reads it when it loads the model.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch

from hotbed import __version__
from hotbed.rose.device import device_name

_LOG = logging.getLogger("hotbed.rose")
# A step this near to the best rate is large enough: more tokens only add latency.
KNEE_SHARE = 0.95
# A graph that gains less is not worth its memory.
CROSSOVER_GAIN = 0.02
# Replicas of one machine share the folder, so a new form of the file gets a new name.
_FORMAT = 1


class StepTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time of a step in a row of steps of one size, two in flight, as Tulip runs them.

    Attributes:
        num_tokens: in a step.
        eager_ms: without a graph.
        replayed_ms: as a graph; None where there are none.
    """

    num_tokens: int
    eager_ms: float
    replayed_ms: float | None = None

    @property
    def best_ms(self) -> float:
        return min(self.eager_ms, self.eager_ms if self.replayed_ms is None else self.replayed_ms)


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured step sizes of one model on one device.

    Attributes:
        step_tokens: smallest step size within 5 % of the best tokens/s: Tulip's budget.
        max_graph_tokens: larger steps run eagerly, as a graph gains under 2 % there; None where
            there are no graphs.
        times: what it follows from, by rising size.
        device: name of the device.
        date: of the measurement, ISO.
    """

    step_tokens: int
    max_graph_tokens: int | None
    times: tuple[StepTime, ...]
    device: str
    date: str


def knee(times: Sequence[StepTime]) -> int:
    """The smallest size whose tokens/s is within 5 % of the best."""
    best = max(t.num_tokens / t.best_ms for t in times)
    return next(t.num_tokens for t in times if t.num_tokens / t.best_ms >= KNEE_SHARE * best)


def crossover(times: Sequence[StepTime]) -> int | None:
    """The largest size at which replay gains 2 % or more; 0 if at none, None without graphs."""
    if any(t.replayed_ms is None for t in times):
        return None
    gaining = (
        t.num_tokens
        for t in times
        if t.replayed_ms is not None and t.eager_ms > (1 + CROSSOVER_GAIN) * t.replayed_ms
    )
    return max(gaining, default=0)


def calibration_file(
    folder: Path, *, fingerprint: str, device: torch.device, num_threads: int | None
) -> Path:
    """Where the calibration of a model on a device lies, under these versions.

    Args:
        folder: Hotbed's cache folder.
        fingerprint: of model and dtype.
        device: of this machine.
        num_threads: of a step on a CPU; None takes torch's own number.
    """
    threads = (num_threads or torch.get_num_threads()) if device.type == "cpu" else 0
    facts = (
        _FORMAT,
        fingerprint,
        device_name(device),
        threads,
        __version__,
        str(torch.__version__),
    )
    key = hashlib.sha256(repr(facts).encode()).hexdigest()[:24]
    return folder / "calibration" / f"{key}.json"


def load_calibration(file: Path) -> Calibration | None:
    """The stored calibration, or None; a file that cannot be read is said in the log."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Calibration)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        _LOG.warning("the calibration in %s is left out: %s", file, error)
        return None


def save_calibration(file: Path, calibration: Calibration) -> None:
    """Store it; the file appears whole or not at all.

    Raises:
        OSError: the folder cannot be written.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(calibration), indent=1)
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        made = Path(scratch) / file.name
        made.write_bytes(text)
        made.replace(file)
