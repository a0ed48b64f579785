"""Lower-cases texts before everything else where the files ask for it and tokenizer.json does not.

``do_lower_case`` of sentence_bert_config.json is for models that were trained on lower-cased text
with a tokenizer that tells cases apart.
"""

from __future__ import annotations

import json
from typing import Any

import tokenizers
from tokenizers import normalizers


def lower_case_first(tokenizer: tokenizers.Tokenizer) -> None:
    """Change `tokenizer` in place, unless it lower-cases already."""
    stated = json.loads(tokenizer.to_str())["normalizer"]
    if _lower_cases(stated):
        return
    first = [normalizers.Lowercase()]
    if tokenizer.normalizer is not None:
        first.append(tokenizer.normalizer)
    tokenizer.normalizer = normalizers.Sequence(first)


def _lower_cases(stated: dict[str, Any] | None) -> bool:
    """Whether a normalizer of tokenizer.json does it, alone or as one of a sequence."""
    if stated is None:
        return False
    if stated["type"] == "Sequence":
        return any(_lower_cases(part) for part in stated["normalizers"])
    return stated["type"] == "Lowercase" or stated.get("lowercase") is True
