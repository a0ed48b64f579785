"""The chat template of mxbai-rerank-v2, whose scores are the logits of "1" and "0".

Source: mixedbread's mxbai_rerank package, version 0.1.6. An instruction is optional there.
"""

from __future__ import annotations

from hotbed.text.chat_form import ChatForm

PREFIX = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\n<|im_start|>user\n"
)
TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For"
    " each query-document pair, carefully analyze the semantic relationship between them, then"
    " provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n"
_SEPARATOR = "\n"


def _head(instruction: str, query: str) -> tuple[str, ...]:
    asked = f"query: {query}"
    if instruction:
        asked = f"instruction: {instruction}{_SEPARATOR}{asked}"
    return asked, _SEPARATOR, "document:"


FORM = ChatForm((PREFIX,), (_SEPARATOR, TASK, SUFFIX), "", _head)
