"""Qwen3-Reranker's chat template.

Source: the model card of Qwen/Qwen3-Reranker-0.6B. Tokens of the template never depend on the
texts: it ends in a line break before the instruction, and begins with a special token after the
document.
"""

from __future__ import annotations

from hotbed.text.chat_form import ChatForm

PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and"
    ' the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
DEFAULT_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


def _head(instruction: str, query: str) -> tuple[str, ...]:
    return (f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>:",)


FORM = ChatForm((PREFIX,), (SUFFIX,), DEFAULT_INSTRUCTION, _head)
