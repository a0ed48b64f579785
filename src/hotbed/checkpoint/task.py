"""Whether a model embeds or scores.

It scores if its files say so: sentence-transformers' CrossEncoder, or a class name that ends with
ForSequenceClassification. The files of a Qwen3ForCausalLM or Qwen2ForCausalLM can be those of an
embedder as well as of a reranker: it scores if its name or its chat template is a reranker's. Where
neither says it, `load_checkpoint(task=...)` decides. Other language models whose name says that
they are rerankers are refused.
"""

from __future__ import annotations

from typing import Literal

from hotbed.checkpoint.config_fields import CONFIG_FILE, Architecture
from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.modules import SCORE_MODULES, Module
from hotbed.checkpoint.reranker_template import reranker_template
from hotbed.checkpoint.score import CAUSAL, HEADS
from hotbed.checkpoint.sentence_transformers import SETTINGS_FILE
from hotbed.core.errors import invalid
from hotbed.core.model_info import Task

AskedTask = Literal["auto", "embed", "score", "sparse"]
"""``sparse``: embed, a masked language model as a SPLADE (`hotbed.checkpoint.sparse`)."""

_CLASSIFIER = "ForSequenceClassification"
_LANGUAGE_MODEL = "ForCausalLM"


def find_task(
    folder: ModelFolder,
    transformer: ModelFolder,
    modules: tuple[Module, ...] | None,
    architecture: Architecture,
    asked: AskedTask,
) -> Task:
    """What the model does.

    Args:
        folder: of the model.
        transformer: of the transformer's own files.
        modules: of modules.json.
        architecture: of config.json.
        asked: ``auto``, or what it must be.

    Raises:
        HotbedError: INVALID_INPUT if the model cannot do what is asked.
    """
    if asked == "sparse":
        asked = "embed"
    found, is_sure = _found_task(folder, transformer, modules, architecture)
    if asked in ("auto", found) or (architecture.name in CAUSAL and not is_sure):
        return found if asked == "auto" else asked
    raise invalid(
        f"model {folder.name!r} cannot be used for the task {asked!r}: by its files"
        f" ({architecture.name}) it can {found!r} only; models that score are"
        f" {', '.join(HEADS)}",
        param="task",
    )


def _found_task(
    folder: ModelFolder,
    transformer: ModelFolder,
    modules: tuple[Module, ...] | None,
    architecture: Architecture,
) -> tuple[Task, bool]:
    """(the task, whether it is certain)."""
    if modules is not None:
        return ("score" if all(m.kind in SCORE_MODULES for m in modules) else "embed"), True
    if folder.has(SETTINGS_FILE):
        settings = read_json_object(folder.path / SETTINGS_FILE)
        if settings.get("model_type") == "CrossEncoder":
            return "score", True
    if architecture.name.endswith(_CLASSIFIER):
        return "score", True
    is_reranker = "rerank" in folder.name.rstrip("/").rpartition("/")[2].lower()
    if (
        is_reranker
        and architecture.name.endswith("ForCausalLM")
        and architecture.name not in CAUSAL
    ):
        path = transformer.path / CONFIG_FILE
        raise unsupported(path, "architectures", [architecture.name], tuple(HEADS))
    if architecture.name not in CAUSAL:
        return "embed", True
    is_reranker = is_reranker or reranker_template(transformer) is not None
    return ("score" if is_reranker else "embed"), False
