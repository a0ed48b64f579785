"""Ids of single tokens by their text, from tokenizer.json and tokenizer_config.json."""

from __future__ import annotations

from typing import Any

from hotbed.checkpoint.folder import ModelFolder, read_json_object

_TOKENIZER_FILE = "tokenizer.json"
_SETTINGS_FILE = "tokenizer_config.json"


class TokenIds:
    """The vocabulary of one model's tokenizer."""

    def __init__(self, transformer: ModelFolder) -> None:
        raw = read_json_object(transformer.file(_TOKENIZER_FILE))
        has_settings = transformer.has(_SETTINGS_FILE)
        self._settings = read_json_object(transformer.path / _SETTINGS_FILE) if has_settings else {}
        model = raw.get("model")
        vocab: Any = model.get("vocab") if isinstance(model, dict) else None
        if isinstance(vocab, dict):
            self._ids = {str(text): number for text, number in vocab.items()}
        else:  # Unigram: pieces with their scores, in the order of the ids
            self._ids = {str(piece[0]): i for i, piece in enumerate(vocab or ())}
        for added in raw.get("added_tokens") or ():
            self._ids[str(added["content"])] = int(added["id"])

    def find(self, text: str) -> int | None:
        """Id of the token that is just this text; None: there is none."""
        return self._ids.get(text)

    def special(self, name: str) -> int | None:
        """Id of a special token by its name in tokenizer_config.json, e.g. ``cls_token``."""
        token = self._settings.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        return self.find(text) if isinstance(text, str) else None
