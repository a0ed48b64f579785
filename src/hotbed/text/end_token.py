"""Puts the end token behind every text where tokenizer_config.json asks for it and tokenizer.json
does not do so.

The files of e5-mistral and gte-Qwen2 state ``add_eos_token``, which the Python classes that wrote
them obeyed; tokenizer.json alone does not know of it. Without the token a last-token model pools a
word instead.
"""

from __future__ import annotations

import tokenizers
from tokenizers.processors import TemplateProcessing

from hotbed.core.errors import invalid
from hotbed.text.template import Template


def append_end_token(
    tokenizer: tokenizers.Tokenizer, end_token: str, template: Template
) -> Template:
    """Make `tokenizer` end every text with `end_token`, unless it does so already.

    Args:
        tokenizer: changed in place.
        end_token: as tokenizer_config.json names it.
        template: what the tokenizer puts around a text now.

    Returns:
        What it puts around a text from now on.

    Raises:
        HotbedError: INVALID_INPUT if the tokenizer has no such token.
    """
    end = tokenizer.token_to_id(end_token)
    if end is None:
        raise invalid(f"tokenizer_config.json: eos_token {end_token!r} is not in tokenizer.json")
    if end in template.suffix:
        return template
    prefix, suffix = template.prefix, (*template.suffix, end)
    names = {token_id: tokenizer.id_to_token(token_id) for token_id in (*prefix, *suffix)}
    before, after = ([names[i] for i in ids] for ids in (prefix, suffix))
    tokenizer.post_processor = TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *after, *before, "$B", *after],
        special_tokens=[(name, token_id) for token_id, name in names.items()],
    )
    return Template(prefix, suffix)
