"""Whether a folder's chat template is that of a reranker, and of which."""

from __future__ import annotations

from hotbed.checkpoint.folder import ModelFolder, read_json_object
from hotbed.checkpoint.records import PairForm

TOKENIZER_SETTINGS_FILE = "tokenizer_config.json"
_CHAT_TEMPLATE_FILE = "chat_template.jinja"
# Of the system message, and of the task's.
_MARKS: dict[PairForm, str] = {
    "qwen3_reranker": "Judge whether the Document",
    "mxbai_reranker": "You are a search relevance expert",
}


def reranker_template(transformer: ModelFolder) -> PairForm | None:
    """By its own file, else by tokenizer_config.json; the template itself is not run."""
    template: object = None
    if transformer.has(_CHAT_TEMPLATE_FILE):
        template = (transformer.path / _CHAT_TEMPLATE_FILE).read_text(encoding="utf-8")
    elif transformer.has(TOKENIZER_SETTINGS_FILE):
        settings = read_json_object(transformer.path / TOKENIZER_SETTINGS_FILE)
        template = settings.get("chat_template")
    if not isinstance(template, str):
        return None
    return next((form for form, mark in _MARKS.items() if mark in template), None)
