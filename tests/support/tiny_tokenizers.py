"""Tiny tokenizers with a fixed vocabulary: the same bytes on every machine, no training.

`wordpiece` is BERT's kind (lower-casing, ``[CLS] … [SEP]``), `byte_level_bpe` is Qwen's (byte
alphabet, a few merges, optionally ``<|endoftext|>`` at the end, as Qwen3-Embedding appends it).
"""

from __future__ import annotations

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

END_OF_TEXT = "<|endoftext|>"
# fmt: off
_WORDS = [
    "a", "an", "and", "are", "as", "at", "be", "by", "cat", "dog", "document", "embedding", "fast",
    "for", "from", "hotbed", "house", "in", "is", "it", "long", "model", "not", "of", "on",
    "passage", "query", "search", "sequence", "short", "text", "that", "the", "this", "to", "token",
    "vector", "was", "with",
]
_SUFFIXES = ["s", "ed", "er", "ing", "ly", "tion"]
_CHARACTERS = [chr(c) for c in range(33, 127) if not chr(c).isupper()] + list("äöüßéñ中文日本")
_MERGED_WORDS = [
    "the", "of", "and", "in", "to", "is", "a", "embedding", "text", "model", "token", "query",
    "vector", "document",
]
# fmt: on


def wordpiece() -> Tokenizer:
    """A BERT tokenizer of some 200 tokens; ids 0 to 4 are [PAD], [UNK], [CLS], [SEP], [MASK]."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    continued = [f"##{c}" for c in _CHARACTERS] + [f"##{s}" for s in _SUFFIXES]
    names = dict.fromkeys([*specials, *_CHARACTERS, *continued, *_WORDS])
    vocab = {name: i for i, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"])
    )
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([AddedToken(s, special=True) for s in specials])
    return tokenizer


def byte_level_bpe(*, append_end: bool) -> Tokenizer:
    """A Qwen-like tokenizer of some 320 tokens; the last id is ``<|endoftext|>``.

    Args:
        append_end: whether the post-processor appends the end token.
    """
    vocab = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges: dict[tuple[str, str], None] = {}
    for word in _MERGED_WORDS:
        for left in ("", "Ġ"):
            whole = left + word
            for stop in range(1, len(whole)):
                merges.setdefault((whole[:stop], whole[stop]))
                vocab.setdefault(whole[: stop + 1], len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab, list(merges)))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, normalized=False, special=True)])
    if append_end:
        end = (END_OF_TEXT, tokenizer.token_to_id(END_OF_TEXT))
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {END_OF_TEXT}", special_tokens=[end]
        )
    return tokenizer
