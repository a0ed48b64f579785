"""How the kernels of small steps are cut, by measurement: `python -m bench.small_steps`.

All layers of a model's shape with random weights, as one CUDA graph per step size. First the result
against the usual layers; then, one kind of kernel at a time, every way to cut it that fits the
card, in the whole chain, where one kernel's start hides behind the other's end: whoever is fastest
alone need not be in the chain. Twice through all kinds, from the rule of `small_gemm.tiling_of`.
Then what each kernel costs: the graph without it.

    python -m bench.small_steps --models pplx-embed-0.6b --tokens 32 128 --out small-steps.jsonl
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotbed.bench import rows
from hotbed.bench.shapes import SHAPES
from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.kernels.hopper import small_gemm
from hotbed.rose.kernels.hopper.nvrtc import _cubin
from hotbed.rose.kernels.hopper.small_gemm import Kernel, Tiling
from hotbed.rose.layers import small_decoder as decoders
from hotbed.rose.layers import small_encoder as encoders
from hotbed.rose.layers.rotary import Rotary
from hotbed.rose.layers.short_encoder import ShortLayer

DEVICE = torch.device("cuda", 0)
REPLAYS, ROUNDS = 8, 3
Key = tuple[str, int]
"""Epilogue and K: one kind of kernel in a layer."""


def random(*shape: int) -> Tensor:
    return (torch.randn(shape, device=DEVICE) * 0.02).bfloat16()


class Chain:
    """All layers of a shape; `tilings` overrules the rule for kinds of kernels."""

    def __init__(self, model: str) -> None:
        self.config = c = SHAPES[model].config
        d, f, n = c.hidden_size, c.intermediate_size, c.num_hidden_layers
        self.tilings: dict[Key, Tiling] = {}
        self.rule = small_gemm.tiling_of
        small_gemm.tiling_of = self.tiling_of
        self.is_decoder = SHAPES[model].family == "decoder"
        if self.is_decoder:
            heads, kv, h = c.num_attention_heads, c.num_key_value_heads, c.head_dim
            self.spec = AttentionSpec(heads, kv, h, causal=c.is_causal)
            shapes = {
                "qkv": ((heads + 2 * kv) * h, d),
                "out": (d, heads * h),
                "gate_up": (2 * f, d),
                "down": (d, f),
            }
            ones = {"attention_norm": d, "mlp_norm": d, "q_norm": h, "k_norm": h}
            layers = [
                decoders.SmallLayer(
                    **{name: random(*shape) for name, shape in shapes.items()},
                    **{name: 1 + random(width) for name, width in ones.items()},
                )
                for _ in range(n)
            ]
            self.model: Any = decoders.SmallDecoder(
                layers, 1 + random(d), self.spec, eps=1e-6, max_tokens=256
            )
            self.rotary = Rotary(
                head_dim=h, theta=c.rope_theta, max_positions=4096, device=DEVICE, scaling=None
            )
            self.keys: list[Key] = [("qkv", d), ("residual", heads * h), ("swiglu", d)]
            self.keys.append(("residual", f))
            self.tiles = dict(zip(self.keys, (s[0] // 128 for s in shapes.values()), strict=True))
        else:
            self.spec = AttentionSpec(
                c.num_attention_heads, c.num_attention_heads, c.head_dim, causal=False
            )

            def pair(*shape: int) -> tuple[Tensor, Tensor]:
                return random(*shape), random(shape[0])

            def norm() -> tuple[Tensor, Tensor]:
                return 1 + random(d), random(d)

            short = [
                ShortLayer(pair(3 * d, d), pair(d, d), norm(), pair(f, d), pair(d, f), norm())
                for _ in range(n)
            ]
            self.model = encoders.SmallEncoder(short, norm(), self.spec, eps=1e-5)
            self.keys = [("project", d), ("postnorm", d), ("gelu", d), ("postnorm", f)]
            sizes = (3 * d, d, f, d)
            self.tiles = dict(zip(self.keys, (n // 128 for n in sizes), strict=True))
        for key in self.keys:
            if key[0] in ("residual", "postnorm"):
                self.tiles[key] *= 2
        self.table, self.positions = random(1000, d), random(600, d)
        self.left_out: str | None = None

    def tiling_of(self, epilogue: str, tiles: int, k: int, num_tokens: int) -> Tiling:
        return self.tilings.get((epilogue, k)) or self.rule(epilogue, tiles, k, num_tokens)

    def batch(self, num_tokens: int) -> PackedBatch:
        ids = torch.arange(num_tokens, dtype=torch.int32, device=DEVICE) % 1000
        return PackedBatch(
            token_ids=ids,
            positions=torch.arange(num_tokens, dtype=torch.int32, device=DEVICE),
            num_tokens=num_tokens,
            cu_seqlens=torch.tensor([0, num_tokens], dtype=torch.int32, device=DEVICE),
            max_seqlen=num_tokens,
            groups=(),
            restore=np.zeros(0, np.int64),
        )

    def run(self, batch: PackedBatch) -> Tensor:
        if self.is_decoder:
            result: Tensor = self.model(batch, self.table, self.rotary.at(batch))
            return result
        encoded: Tensor = self.model(batch, self.table, self.positions)
        return encoded

    def graph(self, batch: PackedBatch) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        self.run(batch)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = self.run(batch)
        return graph, result


def time_us(graphs: dict[Any, torch.cuda.CUDAGraph]) -> dict[Any, float]:
    """Median over rounds of a replay's time, the graphs in turn."""
    times: dict[Any, list[float]] = {name: [] for name in graphs}
    for _, (name, graph) in itertools.product(range(ROUNDS), graphs.items()):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        graph.replay()
        start.record()
        for _ in range(REPLAYS):
            graph.replay()
        stop.record()
        stop.synchronize()
        times[name].append(start.elapsed_time(stop) / REPLAYS * 1e3)
    return {name: statistics.median(some) for name, some in times.items()}


def candidates(chain: Chain, key: Key, num_tokens: int) -> Iterator[Tiling]:
    """Ways to cut one kind of kernel for a step."""
    epilogue, k = key
    features = small_gemm._FEATURES[epilogue]
    for split, token_split in itertools.product((1, 2, 4, 8), (1, 2, 4, 8)):
        tokens, rest = divmod(num_tokens, token_split)
        blocks = chain.tiles[key] * split * token_split
        if rest or tokens % 16 or tokens % split or (k // 64) % split or not 24 <= blocks <= 264:
            continue
        steps = k // 64 // split
        room = small_gemm._SHARED_BYTES // (128 * (features + tokens))
        if 4 * tokens * (features + 4) > small_gemm._SHARED_BYTES:
            continue
        for stages in sorted({min(steps, room, wanted) for wanted in (3, 4, 6, 8, 12)}):
            yield Tiling(split, token_split, stages)


def compile_all(chain: Chain, num_tokens: int) -> None:
    """NVRTC on all cores; the launcher finds the code in its cache."""
    parts = chain.config.hidden_size // 64
    prologues = {
        Kernel(
            num_tokens // t.token_split,
            small_gemm._FEATURES[key[0]],
            t.split,
            t.stages,
            key[0],
            parts,
        ).prologue()
        for key in chain.keys
        for t in candidates(chain, key, num_tokens)
    }
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda p: _cubin(small_gemm._SOURCE, p), prologues))


def descend(chain: Chain, num_tokens: int) -> None:
    """The best tiling of each kind, into `chain.tilings`."""
    batch = chain.batch(num_tokens)
    for _, key in itertools.product(range(2), chain.keys):
        graphs: dict[Any, torch.cuda.CUDAGraph] = {}
        kept = []
        before = chain.tilings.get(key)
        for tiling in (before, *candidates(chain, key, num_tokens)):
            if tiling is None:
                chain.tilings.pop(key, None)
            else:
                chain.tilings[key] = tiling
            graph, result = chain.graph(batch)
            graphs[tiling] = graph
            kept.append(result)
        times = time_us(graphs)
        best = min(times, key=lambda name: times[name])
        if times[best] < 0.995 * times[before] and best is not None:
            chain.tilings[key] = best
        elif before is None:
            chain.tilings.pop(key, None)
        else:
            chain.tilings[key] = before
        ranking = sorted(times.items(), key=lambda item: item[1])[:4]
        print(f"  {num_tokens} {key}: before {times[before]:.1f};", *ranking, flush=True)


def marginal(chain: Chain, num_tokens: int) -> dict[str, float]:
    """us a layer that each kernel adds: the whole graph against the graph without it."""
    batch, graphs, kept = chain.batch(num_tokens), {}, []

    def add(name: str) -> None:
        graph, result = chain.graph(batch)
        graphs[name] = graph
        kept.append(result)

    add("all")
    attend = chain.model._attend
    width = chain.spec.num_heads * chain.spec.head_dim
    skipped = torch.zeros(num_tokens, width, dtype=torch.bfloat16, device=DEVICE)
    chain.model._attend = lambda *_, **__: skipped
    add("attention")
    chain.model._attend = attend
    call = small_gemm.SmallGemm.__call__
    for key in chain.keys:

        def some(self: Any, x: Tensor, *, _key: Key = key, **arguments: Any) -> None:
            if (self.epilogue, self._k) != _key:
                call(self, x, **arguments)

        small_gemm.SmallGemm.__call__ = some
        add(f"{key[0]} {key[1]}")
    small_gemm.SmallGemm.__call__ = call
    times = time_us(graphs)
    layers = chain.config.num_hidden_layers
    return {k: (times["all"] - v) / layers for k, v in times.items() if k != "all"}


def measure(model: str, sizes: list[int], report: Callable[..., None]) -> None:
    chain = Chain(model)
    for num_tokens in sizes:
        chain.tilings.clear()
        batch = chain.batch(num_tokens)
        expected = chain.run(batch).clone()
        compile_all(chain, num_tokens)
        by_rule, _kept = chain.graph(batch)
        each = marginal(chain, num_tokens)
        print(f"{model}, {num_tokens} tokens; us a layer of each kernel: {each}", flush=True)
        descend(chain, num_tokens)
        best, found = chain.graph(batch)
        times = time_us({"rule": by_rule, "best": best})
        cosine = float(torch.cosine_similarity(found.float(), expected.float()).min())
        if not cosine > 0.999:
            sys.exit(f"the tilings found give other rows, cosine {cosine}: nothing is reported")
        report(model, num_tokens, times["rule"], "as tiling_of says", each)
        tilings = {
            f"{e} {k}": (t.split, t.token_split, t.stages) for (e, k), t in chain.tilings.items()
        }
        report(model, num_tokens, times["best"], f"split, token_split, stages: {tilings}", None)
    small_gemm.tiling_of = chain.rule


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["pplx-embed-0.6b", "bge-m3"])
    parser.add_argument("--tokens", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    options = parser.parse_args()
    commit = options.commit or rows.commit()

    def report(
        model: str, num_tokens: int, us: float, settings: str, each: dict[str, float] | None
    ) -> None:
        row = rows.row(
            "small-steps",
            "hotbed",
            model,
            tokens=num_tokens,
            device_ms=round(us / 1e3, 4),
            settings=settings,
            layer_us=each and {name: round(us, 2) for name, us in each.items()},
            device=torch.cuda.get_device_name(),
            commit=commit,
        )
        print(row["tokens"], row["device_ms"], settings, flush=True)
        if options.out:
            rows.append(options.out, [row])

    for model in options.models:
        most = 256 if SHAPES[model].family == "decoder" else 128
        measure(model, [n for n in options.tokens if n <= most], report)
    return 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
