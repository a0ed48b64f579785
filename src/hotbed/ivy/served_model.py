"""What the gateway itself knows of the model: its names, tokenizer and prompts."""

from __future__ import annotations

from dataclasses import dataclass

from hotbed.checkpoint.load import load_checkpoint
from hotbed.checkpoint.records import Prompts
from hotbed.ivy.pool import ExpectedModel
from hotbed.ivy.settings import IvySettings
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
        pairs: of a model that scores; None: it embeds.
    """

    names: tuple[str, ...]
    tokenizer: Tokenizer
    prompts: Prompts
    expected: ExpectedModel
    pairs: PairTokenizer | None = None


def load_served_model(settings: IvySettings) -> ServedModel:
    """Read the checkpoint (no weights) and load its tokenizer.

    Raises:
        HotbedError: if the model is not found or not supported.
    """
    checkpoint = load_checkpoint(
        settings.model,
        revision=settings.revision,
        offline=settings.offline,
        task=settings.task,
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
        pairs = PairTokenizer(tokenizer, checkpoint.head)
    return ServedModel(
        names=served_names(settings.model, settings.served_model_names),
        tokenizer=tokenizer,
        prompts=checkpoint.prompts,
        expected=ExpectedModel(checkpoint.name, vocab_size, checkpoint.max_tokens, checkpoint.task),
        pairs=pairs,
    )


def served_names(model: str, aliases: tuple[str, ...]) -> tuple[str, ...]:
    """Aliases, the full name, its last component; each once."""
    return tuple(dict.fromkeys((*aliases, model, model.rstrip("/").rpartition("/")[2])))
