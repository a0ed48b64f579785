from __future__ import annotations

from collections.abc import Sequence

import pytest
from tokenizers import Tokenizer, processors

from hotbed.core.errors import HotbedError
from hotbed.core.ragged import RaggedBatch
from hotbed.text.backend import BackendName, HuggingFaceBackend
from hotbed.text.template import Template, find_template
from tests.support.tiny_tokenizers import END_OF_TEXT, byte_level_bpe, wordpiece

SPECIALS = [("[CLS]", 2), ("[SEP]", 3), ("[MASK]", 4)]


def with_single(form: str) -> HuggingFaceBackend:
    tokenizer = wordpiece()
    tokenizer.post_processor = processors.TemplateProcessing(single=form, special_tokens=SPECIALS)
    return HuggingFaceBackend(tokenizer)


@pytest.mark.parametrize(
    ("form", "template"),
    [
        ("[CLS] $A [SEP]", Template((2,), (3,))),
        ("[CLS] [MASK] $A [SEP] [SEP]", Template((2, 4), (3, 3))),
        ("$A [SEP]", Template((), (3,))),
        ("[MASK] $A", Template((4,), ())),
        ("[SEP] $A [SEP]", Template((3,), (3,))),
        ("$A", Template()),
    ],
)
def test_prefix_and_suffix_are_found(form: str, template: Template) -> None:
    assert find_template(with_single(form)) == template


@pytest.mark.parametrize(
    ("make", "template"),
    [
        (wordpiece, Template((2,), (3,))),
        (lambda: byte_level_bpe(append_end=False), Template()),
    ],
)
def test_templates_of_the_usual_families(make: object, template: Template) -> None:
    assert callable(make)
    assert find_template(HuggingFaceBackend(make())) == template


def test_end_token_is_the_suffix() -> None:
    tokenizer: Tokenizer = byte_level_bpe(append_end=True)
    end = tokenizer.token_to_id(END_OF_TEXT)
    assert end is not None
    assert find_template(HuggingFaceBackend(tokenizer)) == Template((), (end,))


def test_template_that_repeats_the_text_is_refused() -> None:
    with pytest.raises(HotbedError, match="post_processor"):
        find_template(with_single("[CLS] $A [SEP] $A"))


class LengthAsToken:
    """Puts the text's length before it: no fixed prefix."""

    name: BackendName = "tokenizers"

    def encode(self, texts: Sequence[str], *, add_special_tokens: bool) -> RaggedBatch:
        bodies = [[ord(c) for c in text] for text in texts]
        return RaggedBatch.from_sequences(
            [[len(b), *b] if add_special_tokens else b for b in bodies]
        )


def test_prefix_that_depends_on_the_text_is_refused() -> None:
    with pytest.raises(HotbedError, match="post_processor"):
        find_template(LengthAsToken())
