"""What tokenising costs on this machine: a rough figure, measured once at load."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hotbed.text.backend import Backend

_WORDS = (  # noqa: SIM905
    "the of and to in is that for it as was with be by on not he his but at are this have from or"
    " an they which one you were all her she there would their we him been has when who will no"
    " more if model vector search language network question answer system research government"
    " university embedding retrieval temperature development international population environment,"
    " because although. However, between during several million percent; something (probably)"
).split()
_CJK = (0x4E00, 0x9FFF)
_NUM_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU microseconds of one backend.

    Attributes:
        us_per_text: for a call with one very short text.
        us_per_kchar: for 1,000 characters of English.
        us_per_kchar_wide: for 1,000 characters of Chinese, the dearest of 15 scripts: 2 to 4 times
            English with Hugging Face's tokenizer, 10 to 30 times with the fast ones (2026-11-30).
    """

    us_per_text: float
    us_per_kchar: float
    us_per_kchar_wide: float

    def estimate_us(self, texts: Iterable[str]) -> float:
        """Cost of one call; a text with any character beyond ASCII counts as Chinese."""
        cost_us = self.us_per_text
        for text in texts:
            rate = self.us_per_kchar if text.isascii() else self.us_per_kchar_wide
            cost_us += len(text) * rate / 1000
        return cost_us


def measure_cost(backend: Backend) -> Cost:
    """Medians over texts that are all different, so that caches of whole texts do not help."""
    rng = random.Random(0)  # noqa: S311

    def english() -> str:
        return " ".join(rng.choices(_WORDS, k=200))

    def chinese() -> str:
        return "".join(chr(rng.randint(*_CJK)) for _ in range(500))

    return Cost(
        us_per_text=_median_us(backend, lambda: rng.choice(_WORDS)),
        us_per_kchar=_median_us(backend, english, per_kchar=True),
        us_per_kchar_wide=_median_us(backend, chinese, per_kchar=True),
    )


def _median_us(backend: Backend, sample: Callable[[], str], *, per_kchar: bool = False) -> float:
    costs = []
    for _ in range(_NUM_SAMPLES):
        text = sample()
        start = time.perf_counter()
        backend.encode([text], add_special_tokens=True)
        us = (time.perf_counter() - start) * 1e6
        costs.append(us * 1000 / len(text) if per_kchar else us)
    return statistics.median(costs)
