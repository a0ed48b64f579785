"""From a model's name to its `Checkpoint`: found, read and checked, without its tensors' bytes."""

from __future__ import annotations

import logging
from typing import Any

from hotbed.checkpoint.config import read_config
from hotbed.checkpoint.config_fields import Architecture
from hotbed.checkpoint.dense import read_dense
from hotbed.checkpoint.folder import ModelFolder, read_json_object
from hotbed.checkpoint.modules import Module, read_modules
from hotbed.checkpoint.multi_vector import (
    is_late_interaction,
    read_extra_head,
    read_late_interaction,
)
from hotbed.checkpoint.records import Checkpoint, PoolingConfig, Prompts, TokenizerFiles
from hotbed.checkpoint.resolve import resolve
from hotbed.checkpoint.root_prefix import strip_root_prefix
from hotbed.checkpoint.safetensors_index import read_tensors
from hotbed.checkpoint.score import check_chain, read_head
from hotbed.checkpoint.sentence_transformers import (
    Kind,
    read_pooling,
    read_prompts,
)
from hotbed.checkpoint.sparse import read_splade, read_token_weights
from hotbed.checkpoint.task import AskedTask, find_task
from hotbed.checkpoint.transformer_settings import (
    check_transformer,
    lower_cases,
    read_max_tokens,
)
from hotbed.core.errors import invalid
from hotbed.core.model_info import Task

_ADAPTER = "adapter_config.json"
_TOKENIZER_FILE = "tokenizer.json"
_TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
_DEFAULT_SEPARATOR = "<|endoftext|>"  # what pplx-embed-context-v1 was trained with
_log = logging.getLogger(__name__)


def load_checkpoint(
    name: str,
    *,
    revision: str | None = None,
    offline: bool | None = None,
    weights: bool = True,
    task: AskedTask = "auto",
) -> Checkpoint:
    """Find and read a model.

    Args:
        name: a folder, a model of an installed package, or a hub name.
        revision: branch, tag or commit on the hub.
        offline: True makes no network call; None does what ``HF_HUB_OFFLINE`` says.
        weights: False reads (and downloads) all but the weights, for who only needs the tokenizer,
            the prompts and the limits; `tensors` is then empty.
        task: what the model shall do; ``auto``: what its files say (`hotbed.checkpoint.task`).
            ``sparse``: embed, as a SPLADE, where the files are those of a masked language model.

    Raises:
        HotbedError: MODEL_NOT_FOUND or UNAVAILABLE from the search; INVALID_INPUT naming the file
            and field that are missing or not supported.
    """
    folder = resolve(name, revision=revision, offline=offline, weights=weights)
    modules = read_modules(folder)
    transformer = folder.sub(modules[0].path) if modules else folder
    _refuse_adapter(folder, transformer)
    architecture = read_config(transformer)
    found = find_task(folder, transformer, modules, architecture, task)
    kind = _kind(found, modules, task)
    check_transformer(transformer, kind)
    head = multi_vector = sparse = None
    pooling = PoolingConfig(pooling="cls", normalize=False)
    width = architecture.config.hidden_size
    if kind == "score":
        head = read_head(folder, transformer, modules, architecture)
        check_chain(modules, head)
        pooling = PoolingConfig(pooling=head.pooling, normalize=False)
    elif kind == "sparse":
        sparse = read_splade(folder, transformer, modules, architecture)
    elif kind == "multi_vector":
        assert modules is not None, "the chain says so: this is a bug"
        multi_vector = read_late_interaction(
            folder, transformer, modules, width=width, weights=weights
        )
    else:
        pooling = read_pooling(folder, modules, architecture)
        multi_vector = read_extra_head(folder, width=width, weights=weights)
        sparse = read_token_weights(folder, transformer, width=width, weights=weights)
    if modules is None and kind == "embed":
        _log.warning(
            "%s has no modules.json: %s pooling, not normalised, as sentence-transformers would",
            name,
            pooling.pooling,
        )
    tensors = read_tensors(transformer) if weights else {}
    stored_names = strip_root_prefix(tensors, architecture.family) if weights else {}
    return Checkpoint(
        name=name,
        source=folder.source,
        folder=folder.path,
        family=architecture.family,
        architecture=architecture.name,
        config=architecture.config,
        pooling=pooling,
        prompts=read_prompts(folder, kind) if head is None else Prompts(),
        tokenizer=_tokenizer_files(transformer, architecture),
        max_tokens=read_max_tokens(transformer, architecture),
        tensors={short: tensors[stored] for short, stored in stored_names.items()},
        stored_names=stored_names,
        quantizer=architecture.quantizer,
        head=head,
        dense=read_dense(folder, modules, width=width, weights=weights) if kind == "embed" else (),
        has_dense=kind in ("embed", "score"),
        multi_vector=multi_vector,
        sparse=sparse,
    )


def _refuse_adapter(*folders: ModelFolder) -> None:
    """Transformers would add an adapter's weights to the model beside it; without them rows would
    be those of the base model.
    """
    for folder in folders:
        if folder.has(_ADAPTER):
            raise invalid(
                f"model {folder.name!r}: {_ADAPTER} in {folder.path}: adapters (LoRA) are not"
                " applied. Merge it into its base model (peft: merge_and_unload()), save that, and"
                " serve the folder it gives",
                param=_ADAPTER,
            )


def _kind(found: Task, modules: tuple[Module, ...] | None, asked: AskedTask) -> Kind:
    """What the model is to sentence-transformers."""
    if found == "score":
        return "score"
    if asked == "sparse" or any(module.kind == "SpladePooling" for module in modules or ()):
        return "sparse"
    return "multi_vector" if is_late_interaction(modules) else "embed"


def _tokenizer_files(folder: ModelFolder, architecture: Architecture) -> TokenizerFiles:
    if not folder.has(_TOKENIZER_FILE):
        raise folder.missing(
            _TOKENIZER_FILE,
            "vocab.txt, merges.txt or a SentencePiece file alone is not enough. transformers'"
            " AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes it",
        )
    has_config = folder.has(_TOKENIZER_CONFIG_FILE)
    config = read_json_object(folder.path / _TOKENIZER_CONFIG_FILE) if has_config else {}
    return TokenizerFiles(
        tokenizer_json=folder.path / _TOKENIZER_FILE,
        chunk_separator=(
            _token(config, "sep_token") or _DEFAULT_SEPARATOR
            if architecture.separates_chunks
            else None
        ),
        end_token=_token(config, "eos_token") if config.get("add_eos_token") is True else None,
        lower_case=lower_cases(folder),
    )


def _token(config: dict[str, Any], name: str) -> str | None:
    """A special token of tokenizer_config.json: a string, or the object that some files hold."""
    token = config.get(name)
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) and text else None
