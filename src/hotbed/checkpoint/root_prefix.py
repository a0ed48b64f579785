"""Takes the root prefix off tensor names, so that a model's name map needs one form only.

The same weights are saved as ``layers.0.…``, ``model.layers.0.…``, ``bert.encoder.…`` or
``0.auto_model.encoder.…`` depending on the class that saved them. The prefix is found, not
guessed: every family has one tensor that all its checkpoints hold, and what stands before its name
is the prefix.
"""

from __future__ import annotations

from collections.abc import Iterable

from hotbed.checkpoint.folder import listed
from hotbed.checkpoint.records import FamilyName
from hotbed.core.errors import invalid

_ANCHOR: dict[FamilyName, str] = {
    "bert": "embeddings.word_embeddings.weight",
    "deberta": "embeddings.word_embeddings.weight",
    "modernbert": "embeddings.tok_embeddings.weight",
    "jina_bert": "embeddings.word_embeddings.weight",
    "mpnet": "embeddings.word_embeddings.weight",
    "rotary_bert": "embeddings.word_embeddings.weight",
    "decoder": "embed_tokens.weight",
    "gemma3": "embed_tokens.weight",
    "t5": "shared.weight",
}
_BODY: dict[FamilyName, tuple[str, ...]] = {
    "bert": ("embeddings.", "emb_ln.", "encoder.", "transformer."),
    "deberta": ("embeddings.", "encoder."),
    "modernbert": ("embeddings.", "layers.", "final_norm."),
    "jina_bert": ("embeddings.", "encoder."),
    "mpnet": ("embeddings.", "encoder."),
    "rotary_bert": ("embeddings.", "emb_ln.", "encoder."),
    "decoder": ("embed_tokens.", "layers.", "norm."),
    "gemma3": ("embed_tokens.", "layers.", "norm."),
    "t5": ("shared.", "encoder."),
}


def strip_root_prefix(stored_names: Iterable[str], family: FamilyName) -> dict[str, str]:
    """Map each name without the root prefix to the stored name.

    Names outside the prefix (heads such as ``lm_head.weight``) stay as they are.

    Raises:
        HotbedError: INVALID_INPUT if the anchor tensor is absent or stands under two prefixes, if
            tensors of the body stand both inside and outside the prefix, or if two stored names
            would become one.
    """
    stored = sorted(stored_names)
    prefix = _root_prefix(stored, family)
    if prefix:
        astray = [n for n in stored if not n.startswith(prefix) and n.startswith(_BODY[family])]
        if astray:
            raise invalid(
                f"the weights mix two forms of names: most have the prefix {prefix!r},"
                f" but not {listed(astray)}",
                param="tensors",
            )
    names: dict[str, str] = {}
    for name in stored:
        short = name.removeprefix(prefix)
        if short in names:
            raise invalid(
                f"two tensors have the same name once the prefix {prefix!r} is off:"
                f" {names[short]!r} and {name!r}",
                param="tensors",
            )
        names[short] = name
    return names


def _root_prefix(stored: list[str], family: FamilyName) -> str:
    anchor = _ANCHOR[family]
    found = [n.removesuffix(anchor) for n in stored if n == anchor or n.endswith("." + anchor)]
    if not found:
        raise invalid(
            f"the weights hold no tensor {anchor!r} under any prefix, as a {family} model must;"
            f" they hold {listed(stored)}",
            param="tensors",
        )
    if len(found) > 1:
        raise invalid(
            f"the weights hold {anchor!r} under more than one prefix: {listed(found)};"
            " they are more than one model",
            param="tensors",
        )
    return found[0]
