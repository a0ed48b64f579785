"""What happens to a text before it is divided, where the files beside tokenizer.json say otherwise.

- ``do_lower_case`` of sentence_bert_config.json is for models that were trained on lower-cased text
  with a tokenizer that tells cases apart.
- tokenizer_config.json states the case, accents and Chinese characters of BERT's kind of tokenizers
  as well, and `transformers` goes by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import normalizers

_BERT = "BertNormalizer"


def lower_case_first(tokenizer: tokenizers.Tokenizer) -> None:
    """Change `tokenizer` in place, unless it lower-cases already."""
    if _lower_cases(_stated(tokenizer)):
        return
    first = [normalizers.Lowercase()]
    if tokenizer.normalizer is not None:
        first.append(tokenizer.normalizer)
    tokenizer.normalizer = normalizers.Sequence(first)


def change_bert_normalizer(
    tokenizer: tokenizers.Tokenizer, changes: Mapping[str, bool | None]
) -> bool:
    """Set fields of BERT's normalizer in place; other normalizers stay as they are.

    Returns whether something changed.

    Args:
        tokenizer: changed if its own normalizer states another value.
        changes: by their names in tokenizer.json: lowercase, strip_accents, handle_chinese_chars.
    """
    stated = _stated(tokenizer)
    if stated is None or stated["type"] != _BERT:
        return False
    changed = {**stated, **changes}
    if changed == stated:
        return False
    del changed["type"]
    tokenizer.normalizer = normalizers.BertNormalizer(**changed)
    return True


def _stated(tokenizer: tokenizers.Tokenizer) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(tokenizer.to_str())["normalizer"]
    return found


def _lower_cases(stated: dict[str, Any] | None) -> bool:
    """Whether a normalizer of tokenizer.json does it, alone or as one of a sequence."""
    if stated is None:
        return False
    if stated["type"] == "Sequence":
        return any(_lower_cases(part) for part in stated["normalizers"])
    return stated["type"] == "Lowercase" or stated.get("lowercase") is True
