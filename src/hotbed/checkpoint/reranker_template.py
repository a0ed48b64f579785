"""Whether a folder's chat template is Qwen3-Reranker's."""

from __future__ import annotations

from hotbed.checkpoint.folder import ModelFolder, read_json_object

TOKENIZER_SETTINGS_FILE = "tokenizer_config.json"
_CHAT_TEMPLATE_FILE = "chat_template.jinja"
# Of its system message.
_MARK = "Judge whether the Document"


def has_reranker_template(transformer: ModelFolder) -> bool:
    """By its own file, else by tokenizer_config.json; the template itself is not run."""
    if transformer.has(_CHAT_TEMPLATE_FILE):
        text = (transformer.path / _CHAT_TEMPLATE_FILE).read_text(encoding="utf-8")
        return _MARK in text
    if transformer.has(TOKENIZER_SETTINGS_FILE):
        settings = read_json_object(transformer.path / TOKENIZER_SETTINGS_FILE)
        template = settings.get("chat_template")
        return isinstance(template, str) and _MARK in template
    return False
