"""What the gateway itself knows of the model: its names, tokenizer and prompts."""

from __future__ import annotations

from dataclasses import dataclass

from hotbed.checkpoint.load import load_checkpoint
from hotbed.checkpoint.records import MultiVectorHead, Prompts, Quantizer
from hotbed.core.errors import invalid
from hotbed.ivy.expected import ExpectedModel
from hotbed.ivy.models_file import (
    ModelEntry,
    PromptsEntry,
    read_models_file,
    read_prompts_file,
)
from hotbed.ivy.settings import IvySettings
from hotbed.text.multi_vector import check_marks
from hotbed.text.pairs import PairTokenizer
from hotbed.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The model of one gateway.

    Attributes:
        names: what clients may ask for; the first one is the name in the answers.
        tokenizer: thread-safe.
        prompts: prefixes by name.
        expected: what every replica must agree with.
        quantizer: the model's own recipe for int8 rows.
        replicas: addresses of its replicas; empty: those of the settings.
        min_ready_replicas: healthy ones that /ready asks for; None: all of them.
        pairs: of a model that scores; None: it embeds.
        multi_vector: how texts are read for late interaction; None: the model has no such output.
    """

    names: tuple[str, ...]
    tokenizer: Tokenizer
    prompts: Prompts
    expected: ExpectedModel
    quantizer: Quantizer = "none"
    replicas: tuple[str, ...] = ()
    min_ready_replicas: int | None = None
    pairs: PairTokenizer | None = None
    multi_vector: MultiVectorHead | None = None


def load_served_models(settings: IvySettings) -> list[ServedModel]:
    """Read the checkpoints of all models (no weights) and load their tokenizers.

    Raises:
        HotbedError: if a model or a file is not found or not supported.
    """
    if settings.models_file is not None:
        return [_load(entry, settings) for entry in read_models_file(settings.models_file)]
    prompts = PromptsEntry()
    if settings.prompts_file is not None:
        prompts = read_prompts_file(settings.prompts_file)
    entry = ModelEntry(
        model=settings.model,
        replicas=settings.replicas,
        revision=settings.revision,
        names=settings.served_model_names,
        task=settings.task,
        min_ready_replicas=settings.min_ready_replicas,
        default_prompt=prompts.default_prompt,
        prompts=prompts.prompts,
        instruction=prompts.instruction,
    )
    return [_load(entry, settings)]


def _load(entry: ModelEntry, settings: IvySettings) -> ServedModel:
    checkpoint = load_checkpoint(
        entry.model, revision=entry.revision, offline=settings.offline, task=entry.task
    )
    vocab_size = checkpoint.config.vocab_size
    tokenizer = Tokenizer.load(
        checkpoint.tokenizer,
        max_tokens=checkpoint.max_tokens,
        vocab_size=vocab_size,
        fast=settings.fast_tokenizers,
    )
    pairs = None
    if checkpoint.head is not None:
        pairs = PairTokenizer(tokenizer, entry.over_head(checkpoint.head, entry.model))
    elif entry.instruction is not None:
        raise invalid(f"instruction: {entry.model} is no reranker")
    if checkpoint.multi_vector is not None:
        check_marks(tokenizer, checkpoint.multi_vector)
    return ServedModel(
        names=served_names(entry.model, entry.names),
        tokenizer=tokenizer,
        prompts=entry.over(checkpoint.prompts),
        expected=ExpectedModel(checkpoint.name, vocab_size, checkpoint.max_tokens, checkpoint.task),
        quantizer=checkpoint.quantizer,
        pairs=pairs,
        multi_vector=checkpoint.multi_vector,
        replicas=entry.replicas,
        min_ready_replicas=entry.min_ready_replicas,
    )


def served_names(model: str, aliases: tuple[str, ...]) -> tuple[str, ...]:
    """Aliases, the full name, its last component; each once."""
    return tuple(dict.fromkeys((*aliases, model, model.rstrip("/").rpartition("/")[2])))
