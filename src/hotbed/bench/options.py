"""The options of `hotbed bench`, and what its words of the form SYSTEM:NAME=VALUE say."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hotbed.bench.cells import SUITES, Size, Suite
from hotbed.core.errors import HotbedError, invalid

DEFAULT_SYSTEMS = (
    "hotbed",
    "vllm",
    "sentence-transformers",
    "transformers",
    "infinity",
    "tei",
    "onnxruntime",
    "fastembed",
)


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What is measured, with whom, and for how long."""

    suite: tuple[Literal["latency", "scoring", "throughput", "concurrency"], ...] = SUITES
    """Suites to measure."""
    model: tuple[str, ...] = ()
    """Names of shapes, which get seeded random weights (pplx-embed-0.6b, bge-m3,
    qwen3-embedding-4b, qwen3-reranker-0.6b), or folders of real models; unset: the four shapes on
    a GPU, the default model on a CPU."""
    systems: tuple[str, ...] = DEFAULT_SYSTEMS
    """Systems to measure; one that is not installed is named as such in the report."""
    size: Literal["auto", "full", "small", "tiny"] = "auto"
    """Sizes of the suites: full for a GPU, small for a CPU, tiny to try the bench itself; tiny
    also makes the shapes tiny."""
    out: Path = Path("bench.jsonl")
    """Rows are appended to this file as they are measured; logs go to a folder beside it."""
    work: Path = Path(tempfile.gettempdir()) / "hotbed-bench"
    """Folder for the models with random weights and the systems' caches; kept."""
    tokenizer: Path | None = None
    """tokenizer.json of Qwen3 for its shapes; unset: a stand-in trained on the texts."""
    texts: Path | None = None
    """File with the text that inputs are cut from; unset: the news items in the package gensim."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the systems compute."""
    threads: int | None = None
    """CPU threads of each system; unset: their own default."""
    seconds: float = 2.0
    """Time for a system in a cell, all rounds together; a request that has begun is finished."""
    rounds: int = 3
    """Turns in which the systems are measured in a cell, one after the other."""
    requests: int = 10_000
    """Most requests of a system in a cell."""
    warm_up_s: float = 1.0
    """Untimed running of a system before a cell; a few requests at least."""
    clients: int = 4
    """Client processes of the throughput suite."""
    workers: int = 2
    """Gateway processes of Hotbed's service."""
    kernel_dir: Path | None = None
    """Folder of kernels built ahead of time, for Hotbed on a GPU."""
    python: tuple[str, ...] = ()
    """SYSTEM=PATH: the interpreter of a system that has an environment of its own."""
    env: tuple[str, ...] = ()
    """SYSTEM:NAME=VALUE: an environment variable of a system, such as PYTHONPATH."""
    set: tuple[str, ...] = ()
    """SYSTEM:NAME=VALUE: a setting of a system, named in the rows."""
    url: tuple[str, ...] = ()
    """SYSTEM=http://HOST:PORT: a server of this system that runs already, with the same single
    model; it is asked at /v1/embeddings."""
    allow_different: tuple[str, ...] = ()
    """Systems that are measured although their rows differ from Hotbed's; the report marks them."""
    start_timeout_s: float = 300.0
    """Time for a system to load a model, all starting at once."""
    call_timeout_s: float = 120.0
    """Time for an answer; a system that takes longer has failed."""
    longest_pass_s: float | None = None
    """Leave out cells of which one request of each client takes longer even at the device's
    ceilings; unset: none."""
    max_minutes: float | None = None
    """Start no cell after this time; those left out are named in the report."""
    gpu_memory_gib: float = 3.0
    """KV cache that each vLLM process reserves; its weights and activations come on top."""
    commit: str | None = None
    """For the rows, where Hotbed does not run from a git checkout."""

    def __post_init__(self) -> None:
        for name in ("rounds", "requests", "clients", "workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("seconds", "start_timeout_s", "call_timeout_s", "gpu_memory_gib"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if not self.warm_up_s >= 0:
            raise ValueError(f"warm_up_s must be at least 0, got {self.warm_up_s}")

    @property
    def system_names(self) -> tuple[str, ...]:
        """The systems, also where they were given with commas between them."""
        return tuple(dict.fromkeys(name for text in self.systems for name in text.split(",")))

    @property
    def suites(self) -> tuple[Suite, ...]:
        """The suites once each."""
        return tuple(dict.fromkeys(self.suite))

    def sizes_for(self, device_type: str) -> Size:
        """The sizes for a device of type ``cpu`` or ``cuda``."""
        if self.size == "auto":
            return "full" if device_type == "cuda" else "small"
        return self.size


def by_system(words: tuple[str, ...], option: str, known: tuple[str, ...]) -> dict[str, str]:
    """SYSTEM=VALUE words as a dictionary.

    Raises:
        HotbedError: INVALID_INPUT naming the option, for a word of another form or a system that
            is not measured.
    """
    found = {}
    for word in words:
        system, separator, value = word.partition("=")
        if not separator or not value:
            raise _bad(option, word, "SYSTEM=VALUE")
        found[_known(system, option, known)] = value
    return found


def settings_by_system(
    words: tuple[str, ...], option: str, known: tuple[str, ...]
) -> dict[str, dict[str, str]]:
    """SYSTEM:NAME=VALUE words as a dictionary a system.

    Raises:
        HotbedError: as of `by_system`.
    """
    found: dict[str, dict[str, str]] = {}
    for word in words:
        target, separator, value = word.partition("=")
        system, colon, name = target.partition(":")
        if not separator or not colon or not name:
            raise _bad(option, word, "SYSTEM:NAME=VALUE")
        found.setdefault(_known(system, option, known), {})[name] = value
    return found


def _known(system: str, option: str, known: tuple[str, ...]) -> str:
    if system not in known:
        raise invalid(
            f"--{option}: {system!r} is not among the systems: {', '.join(known)}", option
        )
    return system


def _bad(option: str, word: str, form: str) -> HotbedError:
    return invalid(f"--{option} takes {form}, got {word!r}", option)
