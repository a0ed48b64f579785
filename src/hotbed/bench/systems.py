"""The systems that can be measured, and which of them this machine has."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from hotbed.bench import servers
from hotbed.bench.servers import MakeServer
from hotbed.core.errors import invalid

_FIND_TIMEOUT_S = 60.0
# Prints the version, for a folder on the path the one its module names; exit code 1 without it.
_FIND = (
    "import importlib as i, importlib.metadata as m, importlib.util as u, sys\n"
    "found = u.find_spec(sys.argv[1]) is not None\n"
    "try: print(m.version(sys.argv[2]) if found else '')\n"
    "except m.PackageNotFoundError:\n"
    "    print(getattr(i.import_module(sys.argv[1]), '__version__', 'unknown'))\n"
    "sys.exit(not found)"
)


@dataclass(frozen=True, slots=True)
class System:
    """A system.

    Attributes:
        name: for the rows: its package's on the index.
        module: that is imported; None: it is a program.
        adapter: of its process, as module:class; None: it has no such form here.
        server: starts its server; None: it has none.
        tasks: of models that it takes.
        devices: on which it is measured.
    """

    name: str
    module: str | None
    adapter: str | None = None
    server: MakeServer | None = None
    tasks: tuple[str, ...] = ("embed",)
    devices: tuple[str, ...] = ("cpu", "cuda")


_ADAPTERS = "hotbed.bench.adapters."
_BOTH = ("embed", "score")
SYSTEMS = {
    s.name: s
    for s in (
        System("hotbed", "hotbed", _ADAPTERS + "hotbed:Hotbed", servers.hotbed, _BOTH),
        System("vllm", "vllm", _ADAPTERS + "vllm:Vllm", servers.vllm_server, _BOTH, ("cuda",)),
        System(
            "sentence-transformers",
            "sentence_transformers",
            _ADAPTERS + "sentence_transformers:SentenceTransformers",
        ),
        System(
            "transformers", "transformers", _ADAPTERS + "transformers:Transformers", tasks=_BOTH
        ),
        System("infinity", "infinity_emb", server=servers.infinity),
        System("tei", None, server=servers.tei),
        System("onnxruntime", "onnxruntime", _ADAPTERS + "onnx:OnnxRuntime", devices=("cpu",)),
        System("fastembed", "fastembed", _ADAPTERS + "onnx:FastEmbed", devices=("cpu",)),
    )
}
REFERENCE = SYSTEMS["transformers"]
"""In fp32, whose rows all others are held to."""
_PACKAGES = {"infinity": "infinity-emb"}


def system(name: str) -> System:
    """The system of this name.

    Raises:
        HotbedError: INVALID_INPUT naming those there are.
    """
    if name not in SYSTEMS:
        raise invalid(f"there is no system {name!r}; there are {', '.join(SYSTEMS)}", "systems")
    return SYSTEMS[name]


def installed_version(found: System, python: str, environment: Mapping[str, str]) -> str | None:
    """Its version among the packages of this interpreter; None if it is not installed."""
    if found.module is None:
        return "unknown" if shutil.which("text-embeddings-router") else None
    package = _PACKAGES.get(found.name, found.name)
    try:
        done = subprocess.run(  # noqa: S603  # the user's own interpreter
            [python, "-c", _FIND, found.module, package],
            capture_output=True,
            text=True,
            check=False,
            env=dict(environment),
            timeout=_FIND_TIMEOUT_S,
        )
    except OSError as error:
        raise invalid(f"--python: {python} cannot be run: {error}", "python") from error
    return done.stdout.strip() if done.returncode == 0 else None
