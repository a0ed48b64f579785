"""Models on the Hugging Face hub, or in its local cache: only the files that Hotbed reads.

Never fetched: pickles, Python code, ONNX and other formats. Stands on the part of huggingface_hub
that is the same in 1.x and 2.x.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

from hotbed.checkpoint.folder import ModelFolder
from hotbed.checkpoint.modules import module_paths, weight_paths
from hotbed.checkpoint.multi_vector import HEAD_FILE
from hotbed.checkpoint.safetensors_index import INDEX_FILE, weight_files
from hotbed.checkpoint.sparse import SPARSE_HEAD_FILE
from hotbed.checkpoint.transformer_settings import FILE_NAMES
from hotbed.core.errors import ErrorCode, HotbedError, invalid

_SETTINGS_FILES = (
    "adapter_config.json",
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "chat_template.jinja",
    *FILE_NAMES,
    "tokenizer.json",
    "tokenizer_config.json",
    INDEX_FILE,
)
# Folders of modules (1_Pooling) and, in old repositories, of the transformer (0_Transformer).
_MODULE_FOLDER = "[0-9]_*/"
_SETTINGS_PATTERNS = [*_SETTINGS_FILES, f"{_MODULE_FOLDER}*.json"]


def is_offline() -> bool:
    """Whether the environment forbids the network, as huggingface_hub read it when imported."""
    from huggingface_hub import constants  # noqa: PLC0415  (0.2 s that a local folder need not pay)

    return constants.HF_HUB_OFFLINE


def download(
    name: str, *, revision: str | None, offline: bool, weights: bool = True, advice: str = ""
) -> Path:
    """The snapshot folder of hub model `name`, downloaded unless it is cached already.

    First the settings, then the weight files that they name, of the same commit: so neither a
    stray second copy of the weights nor another format is fetched.

    Args:
        name: ``organisation/model``.
        revision: branch, tag or commit; None for the main branch.
        offline: only look into the local cache. What is cached may be incomplete; who reads the
            folder names the missing file.
        weights: False fetches the settings only.
        advice: said at the end of a not-found error.

    Raises:
        HotbedError: MODEL_NOT_FOUND, UNAVAILABLE (the hub did not answer) or INVALID_INPUT.
    """
    folder = _snapshot(name, _SETTINGS_PATTERNS, revision=revision, offline=offline, advice=advice)
    if offline:
        return folder
    found = ModelFolder(name=name, source="hub", path=folder)
    # modules.json may name folders of any other name.
    unusual = [path for path in module_paths(found) if not fnmatch(f"{path}/", _MODULE_FOLDER)]
    if unusual:
        settings = [f"{path}/*.json" for path in unusual]
        _snapshot(name, settings, revision=folder.name, offline=False, advice=advice)
    if not weights:
        return folder
    wanted = [
        f"{inside}/{file}" if inside else file
        for inside in weight_paths(found)
        for file in weight_files(found.sub(inside))
    ]
    wanted += [HEAD_FILE, SPARSE_HEAD_FILE]  # where the repository has them
    return _snapshot(name, wanted, revision=folder.name, offline=False, advice=advice)


def _snapshot(
    name: str, patterns: list[str], *, revision: str | None, offline: bool, advice: str
) -> Path:
    from huggingface_hub import errors, snapshot_download  # noqa: PLC0415  (as in is_offline)

    def not_found(message: str) -> HotbedError:
        return HotbedError(ErrorCode.MODEL_NOT_FOUND, message + advice, param="model")

    try:
        return Path(
            snapshot_download(
                name, revision=revision, allow_patterns=patterns, local_files_only=offline
            )
        )
    except errors.HFValidationError as error:
        raise invalid(f"{name!r} is not a hub name: {error}", param="model") from error
    except errors.GatedRepoError as error:
        raise not_found(
            f"hub model {name!r} is gated: accept its terms on its page and log in (hf auth login)"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise not_found(
            f"there is no folder {name!r} here, and the hub has no such model, or it is private and"
            " you are not logged in"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise not_found(f"hub model {name!r} has no revision {revision!r}") from error
    except errors.LocalEntryNotFoundError as error:
        if offline:
            raise not_found(
                f"offline, and the local hub cache has no complete copy of {name!r}"
                f" (revision {revision or 'main'}): {error} Download it once with the network on"
                " and HF_HUB_OFFLINE unset, or give a local folder"
            ) from error
        raise _unavailable(name, error) from error
    except Exception as error:  # whatever went wrong on the way to the hub, the model is not here
        raise _unavailable(name, error) from error


def _unavailable(name: str, error: Exception) -> HotbedError:
    return HotbedError(
        ErrorCode.UNAVAILABLE,
        f"the hub could not be asked for {name!r} and the local cache has no copy"
        f" ({type(error).__name__}: {error})",
        param="model",
    )
