"""Stand-ins for tokenizers that are not at hand, trained on the texts that are measured with."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

END_OF_TEXT = "<|endoftext|>"
_VOCAB = 8_000


def byte_level_bpe(texts: list[str], *, max_vocab: int) -> Tokenizer:
    """Of Qwen's kind: byte-level BPE without a template; ``yes`` and ``no`` are tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=min(_VOCAB, max_vocab),
        special_tokens=[AddedToken(END_OF_TEXT, special=True)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Often enough that both answers are merged early.
    tokenizer.train_from_iterator([*texts, *(["yes", "no"] * 10_000)], trainer)
    return tokenizer


def unigram(texts: list[str], *, max_vocab: int) -> Tokenizer:
    """Of XLM-R's kind: ``<s> text </s>``, padding 1, pieces of words with their space before."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=min(_VOCAB, max_vocab),
        special_tokens=specials,
        unk_token=specials[3],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer
