"""The file that lists several models for one gateway, and the one with a model's prompts.

    [[models]]
    model = "sentence-transformers/all-MiniLM-L6-v2"  # folder, hub name or installed model
    names = ["minilm"]                                # more names; the first is that of the answers
    replicas = ["dns:minilm:50051"]
    min_ready_replicas = 1                            # absent: all of them
    default_prompt = "query"
    instruction = "Find papers that answer the question"  # of a reranker whose template has one
    [models.prompts]                                  # beside the model's own, or in their place
    query = "query: "

A file of prompts for the one model of the settings has `default_prompt`, `instruction` and
`[prompts]` alone.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from hotbed.checkpoint.records import Prompts, ScoreHead
from hotbed.core.errors import invalid
from hotbed.ivy.addresses import check_entry

T = TypeVar("T")


class PromptsEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Prompts of one model."""

    default_prompt: str | None = None
    """Name of the one that is used where a request asks for none."""
    prompts: dict[str, str] = {}
    """Text before every input, by name."""
    instruction: str | None = None
    """Where a request gives none, in place of the model's own; for rerankers whose template has
    one."""

    def over(self, own: Prompts) -> Prompts:
        """The model's own prompts with these in their place or beside them.

        Raises:
            HotbedError: INVALID_INPUT if the default is the name of none.
        """
        by_name = {**own.by_name, **self.prompts}
        default = self.default_prompt if self.default_prompt is not None else own.default_name
        if default is not None and default not in by_name:
            raise invalid(f"default_prompt {default!r} is none of {sorted(by_name)}")
        return Prompts(by_name=by_name, default_name=default)

    def over_head(self, head: ScoreHead, model: str) -> ScoreHead:
        """The model's head with this instruction in place of its own.

        Raises:
            HotbedError: INVALID_INPUT if its template takes none.
        """
        if self.instruction is None:
            return head
        if head.pair_form == "tokenizer":
            raise invalid(f"instruction: the template of {model} takes none")
        return msgspec.structs.replace(head, instruction=self.instruction)


class ModelEntry(PromptsEntry, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One model."""

    model: str
    replicas: tuple[str, ...]
    revision: str | None = None
    task: Literal["auto", "embed", "score", "sparse"] = "auto"
    names: tuple[str, ...] = ()
    min_ready_replicas: int | None = None


class ModelsFile(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    models: tuple[ModelEntry, ...]


def read_models_file(path: Path) -> tuple[ModelEntry, ...]:
    """The models that the file lists, at least one.

    Raises:
        HotbedError: INVALID_INPUT naming the file and the field.
    """
    models = _read(path, ModelsFile).models
    if not models:
        raise invalid(f"{path}: models is empty")
    for index, entry in enumerate(models):
        where = f"{path}: models[{index}]"
        if not entry.replicas:
            raise invalid(f"{where}.replicas is empty")
        if entry.min_ready_replicas is not None and entry.min_ready_replicas < 1:
            raise invalid(f"{where}.min_ready_replicas must be at least 1")
        for replica in entry.replicas:
            try:
                check_entry(replica)
            except ValueError as error:
                raise invalid(f"{where}.{error}") from None
    return models


def read_prompts_file(path: Path) -> PromptsEntry:
    """The prompts that the file lists.

    Raises:
        HotbedError: INVALID_INPUT naming the file and the field.
    """
    return _read(path, PromptsEntry)


def _read(path: Path, kind: type[T]) -> T:
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text())
        return msgspec.convert(values, kind)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise invalid(f"{path} cannot be read: {error}") from None
    except msgspec.ValidationError as error:
        raise invalid(f"{path}: {error}") from None
