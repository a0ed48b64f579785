"""What the gateway itself knows of the model: its names, tokenizer and prompts."""

from __future__ import annotations

from dataclasses import dataclass

from hotbed.checkpoint.load import load_checkpoint
from hotbed.checkpoint.records import Prompts, Quantizer
from hotbed.ivy.pool import ExpectedModel
from hotbed.ivy.settings import IvySettings
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
    """

    names: tuple[str, ...]
    tokenizer: Tokenizer
    prompts: Prompts
    expected: ExpectedModel
    quantizer: Quantizer = "none"
    replicas: tuple[str, ...] = ()
    min_ready_replicas: int | None = None


def load_served_model(settings: IvySettings) -> ServedModel:
    """Read the checkpoint (no weights) and load its tokenizer.

    Raises:
        HotbedError: if the model is not found or not supported.
    """
    checkpoint = load_checkpoint(
        settings.model, revision=settings.revision, offline=settings.offline
    )
    vocab_size = checkpoint.config.vocab_size
    return ServedModel(
        names=served_names(settings.model, settings.served_model_names),
        tokenizer=Tokenizer.load(
            checkpoint.tokenizer,
            max_tokens=checkpoint.max_tokens,
            vocab_size=vocab_size,
            fast=settings.fast_tokenizers,
        ),
        prompts=checkpoint.prompts,
        expected=ExpectedModel(checkpoint.name, vocab_size, checkpoint.max_tokens),
    )


def served_names(model: str, aliases: tuple[str, ...]) -> tuple[str, ...]:
    """Aliases, the full name, its last component; each once."""
    return tuple(dict.fromkeys((*aliases, model, model.rstrip("/").rpartition("/")[2])))
