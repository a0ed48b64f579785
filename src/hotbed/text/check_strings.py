"""The fixed strings on which a fast tokenizer must agree with the reference.

About 2,000: hand-picked odd ones, this tokenizer's added tokens and a sample of its vocabulary, and
seeded Unicode fuzz. The same on every machine.
"""

from __future__ import annotations

import random

import tokenizers

# ruff: noqa: RUF001

_NUM_FUZZ = 1200
_NUM_VOCABULARY = 400

_WHITE_SPACE = (
    " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2003\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_INVISIBLE = (
    "\x00\x01\x07\x08\x1b\x7f\x80\x9f\xad\u061c\u200b\u200c\u200d\u200e\u2060"
    "\ufeff\ufffd\ufffe\uffff"
)
_ODD = (
    # ordinary text, case and numbers
    "Hello, World!", "hello world", "HELLO WORLD", "hElLo wOrLd", "The quick brown fox.", "1",
    "12", "123", "1234", "1,234,567.89", "3.14159", "-1e-10", "0x1F", "2026-11-30", "12:34:56",
    "don't can't I'll we've they're it's DON'T I'LL", "state-of-the-art", "snake_case camelCase",
    "user@example.com", "https://example.com/a/b?c=d&e=%20#f", "C:\\path\\to\\file",
    "$100 €5 £3 ¥9", "a.b.c", "...", "!!!", "?!", "--", "—–-‐‑", "“quoted” ‘single’ «angle»",
    "(a) [b] {c} <d>", "#hashtag @mention", "~`^|\\", "a/b", "1/2 ½ ²³ ⅷ ①", "++c --d ==", "'",
    '"', "`", "def f(x):\n    return x\n", "{\"a\": [1, 2, null]}", "<p>text &amp; more</p>",
    "x\n\n\ny", "x \n y",
    # white space of every kind, alone, inside, leading and trailing
    "", " ", "  ", "\n", "\r\n", "\t\t", " x", "x ", "  x  y  ", "\nx\n", "x\r\ny", "x\u00a0y",
    "\u3000x",
    # letters with marks, composed and not, and case folding that changes length
    "é", "e\u0301", "E\u0301", "a\u0300\u0301\u0302b", "\u0301", "\u0301a", "\u0344", "ñ", "Å",
    "Å", "Å", "ﬁ ﬂ ﬀ", "ﷺ", "İstanbul", "ıI", "ß ẞ SS", "ǅ ǆ Ǆ", "Ω Ω", "ſ", "K", "µ μ", "ΑΣ ας",
    "ΌΣΟΣ", "ᾳ ᾼ", "Straße GRÖSSE", "naïve café résumé", "Ça va où", "Żółć", "Đặng Thị",
    "q\u0307\u0323 q\u0323\u0307",
    # scripts
    "日本語のテキスト", "中文文本", "中文 with English 混合", "한국어 텍스트", "각",
    "\u1100\u1161\u11a8", "カタカナ ｶﾀｶﾅ ﾊﾟ", "ば は\u3099", "\U00020000\U0002a6d6\U0002f800",
    "㐀䶵", "豈", "〇", "全角ＡＢＣ１２３", "Привет мир", "Й й и\u0306", "Ελληνικά",
    "עברית שָׁלוֹם", "العربية مرحبا", "ـــ", "فارسی\u200cها", "हिन्दी क्षि", "ไทยภาษา", "தமிழ்",
    "ქართული", "Հայերեն", "አማርኛ", "မြန်မာ", "ខ្មែរ", "བོད", "ᏣᎳᎩ ꭰ", "𐐀𐐨", "𝐀𝔅𝒞𝟙",
    "abc עברית 123 def", "\u202eabc\u202c", "\u2067abc\u2069",
    # emoji: plain, variation selectors, skin tones, joiners, flags, keycaps, tags
    "😀", "😀😀😀", "☺\ufe0f", "☺\ufe0e", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "1️⃣", "❤️‍🔥",
    "a😀b", "😀 😀", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "™ © ®",
    "♥ ♠ ♦", "→ ⇒ ∀ ∑ √", "▁ _ ▁▁",
    # byte-level and private corners
    "\ue000\uf8ff", "\U000f0000\U0010ffff", "\ufdd0", "\u2ff0", "\u0378", "\u0600", "\u17b4",
    "\u180e", "\uffa0", "Ġ", "Ċ", "ĠĠ", "Ġthe", "##ing", "##", "# #ing", "<0x0A>", "�",
    # special tokens of many families, whole, broken, in other cases and stuck to words
    "[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]", "[cls]", "[ SEP ]", "[SEP", "SEP]", "a[SEP]b",
    "[SEP][SEP]", "<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>",
    "<|im_start|>user\nhi<|im_end|>", "<|im_end", "<|endoftext|><|endoftext|>",
    "x<|endoftext|>y", " <|endoftext|> ", "<think></think>", "[UNK] " * 60,
)  # fmt: skip

_LONG = (
    "a" * 99, "a" * 100, "a" * 101, "é" * 100, "e\u0301" * 100, "中" * 101, "😀" * 101,
    "1" * 200, "!" * 200, " " * 300, "\n" * 300, "\u0301" * 300, "ab" * 3000, "word " * 1000,
    "a\u200d" * 200, "x\n " * 300, "'s" * 300, "antidisestablishmentarianism" * 20,
    "Lorem ipsum, dolor sit amet; 12 34. " * 150,
)  # fmt: skip

# First and last code point of the blocks that the fuzz draws from; no surrogates.
_BLOCKS = (
    (0x00, 0x1F), (0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0x41, 0x5A), (0x30, 0x39),
    (0x7F, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F),
    (0x530, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF),
    (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x23FF), (0x2500, 0x2BFF), (0x3000, 0x30FF),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xF900, 0xFAFF), (0xFB00, 0xFDFF),
    (0xFE00, 0xFFFF), (0x10000, 0x107FF), (0x1D400, 0x1D7FF), (0x1F000, 0x1FAFF),
    (0x20000, 0x2FA1F), (0xE0000, 0xE01EF), (0xE000, 0x10FFFF),
)  # fmt: skip


def check_strings(tokenizer: tokenizers.Tokenizer) -> list[str]:
    """About 2,000 strings: the fixed ones and those made from this tokenizer's own vocabulary."""
    rng = random.Random(20261130)  # noqa: S311
    spaces = [text for c in _WHITE_SPACE for text in (c, c * 3, f"a{c}b", f"{c}a", f"a{c}{c} b{c}")]
    hidden = [text for c in _INVISIBLE for text in (c, f"a{c}b", f"{c} a", f"a {c} b", f"{c}{c}")]
    return [
        *_ODD,
        *_LONG,
        *spaces,
        *hidden,
        *_from_added_tokens(tokenizer),
        *_from_vocabulary(tokenizer, rng),
        *(_fuzz(rng) for _ in range(_NUM_FUZZ)),
    ]


def _from_added_tokens(tokenizer: tokenizers.Tokenizer) -> list[str]:
    contents = [token.content for token in tokenizer.get_added_tokens_decoder().values()][:60]
    forms = ("{0}", "a{0}b", " {0} ", "{0}{0}", "x {0}, y", "\n{0}\n")
    texts = [form.format(content) for content in contents for form in forms]
    return texts + [change(c) for c in contents for change in (str.lower, str.upper)]


def _from_vocabulary(tokenizer: tokenizers.Tokenizer, rng: random.Random) -> list[str]:
    """Random tokens of the vocabulary as text, alone and in runs with and without spaces."""
    size = tokenizer.get_vocab_size()
    ids = [[rng.randrange(size)] for _ in range(_NUM_VOCABULARY)]
    pieces = [p or "a" for p in tokenizer.decode_batch(ids, skip_special_tokens=False)]
    runs = [pieces[i : i + 8] for i in range(0, len(pieces), 8)]
    return pieces[: _NUM_VOCABULARY // 4] + ["".join(r) for r in runs] + [" ".join(r) for r in runs]


def _fuzz(rng: random.Random) -> str:
    blocks = rng.sample(_BLOCKS, rng.randint(1, 4))
    length = rng.randint(1, 40)
    return "".join(
        " " if rng.random() < 0.1 else chr(rng.randint(*rng.choice(blocks))) for _ in range(length)
    )
