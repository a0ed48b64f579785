"""What Hotbed wants to reach beside vLLM and what Perplexity published, met or missed.

Published: Perplexity, "Fast Embeddings on GPUs", September 2026; H200, for their own stack and for
vLLM 0.22.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotbed.bench.report.results import Row, one

PEER = "vllm"
PUBLISHED = {
    ("pplx-embed-0.6b", 1, 128): ("1.88 ms", "4.94 ms"),
    ("pplx-embed-0.6b", 1, 4096): ("15.41 ms", "16.15 ms"),
    ("pplx-embed-0.6b", 100, 512): ("927/s", "902/s"),
    ("bge-m3", 1, 128): ("1.53 ms", "4.60 ms"),
    ("bge-m3", 1, 4096): ("9.57 ms", "11.71 ms"),
    ("bge-m3", 100, 512): ("1,499/s", "1,342/s"),
}
"""(model, texts, tokens): what Perplexity's stack takes, and vLLM by them."""
_PUBLISHED_ON = "H200"
_PUBLISHED_128_MS = {
    model: float(ours.split()[0]) for (model, n, t), (ours, _) in PUBLISHED.items() if t == 128
}


@dataclass(frozen=True, slots=True)
class Aim:
    """One aim and what became of it.

    Attributes:
        what: in words.
        times: how many times better Hotbed is.
        wanted: at least.
        figures: both sides, in words.
    """

    what: str
    times: float
    wanted: float
    figures: str

    @property
    def verdict(self) -> str:
        """Met, or missed by how much."""
        if self.times >= self.wanted:
            return "met"
        return f"missed by {1 - self.times / self.wanted:.0%}"


def aims(rows: Sequence[Row], model: str) -> list[Aim]:
    """Those whose figures there are, for a model."""
    found: list[Aim] = []

    def compare(what: str, wanted: float, name: str, unit: str, **cell: object) -> None:
        ours = one(rows, model=model, system="hotbed", **cell)
        theirs = one(rows, model=model, system=PEER, **cell)
        if ours is None or theirs is None:
            return
        is_rate = unit == "/s"
        times = ours[name] / theirs[name] if is_rate else theirs[name] / ours[name]
        figures = f"{_shown(ours[name], unit)} against {_shown(theirs[name], unit)}"
        found.append(Aim(what, times, wanted, figures))

    lone = {"suite": "latency", "way": "offline", "n": 1, "tokens": 128}
    compare("one text of 128 tokens, p50, beside vLLM", 4.0, "p50_ms", " ms", **lone)
    ours = one(rows, model=model, system="hotbed", **lone)
    published = _PUBLISHED_128_MS.get(model)
    if ours is not None and published is not None and _PUBLISHED_ON in ours["device"]:
        found.append(
            Aim(
                "one text of 128 tokens, p50, beside what Perplexity published",
                published / ours["p50_ms"],
                2.0,
                f"{_shown(ours['p50_ms'], ' ms')} against {_shown(published, ' ms')}",
            )
        )
    scoring = {"suite": "scoring", "way": "offline", "n": 25, "tokens": 512}
    compare("scoring 25 x 512, p50, beside vLLM", 1.25, "p50_ms", " ms", **scoring)
    for way, words in (("clients", "four clients"), ("offline", "one process")):
        throughput = {"suite": "throughput", "way": way, "n": 100, "tokens": 512}
        compare(f"throughput 100 x 512, {words}, beside vLLM", 1.3, "seq_per_s", "/s", **throughput)
    busy = {"suite": "concurrency", "way": "http", "tokens": 512, "concurrency": 16}
    compare("16 at a time over HTTP, p99, beside vLLM", 2.0, "p99_ms", " ms", **busy)
    return found


def _shown(value: float, unit: str) -> str:
    return f"{value:,.0f}{unit}" if unit == "/s" else f"{value:.2f}{unit}"
