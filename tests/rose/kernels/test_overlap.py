"""Kernels back to back with programmatic dependent launch, captured: the bits of plain launches.

Each kernel reads what the one before wrote, and overwrites what earlier ones read: one that did not
wait would show here.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.rose.kernels.devices import Randoms, require_compiled

launchers = pytest.importorskip("hotbed.rose.kernels.launchers", reason="Triton is not installed")

HEADS = {"num_heads": 4, "num_kv_heads": 2}
WIDTH, HEAD_DIM = 1024, 128


class Chain:
    """Sixteen rounds of four kernels on the same few buffers, then pooling."""

    def __init__(self, num_rows: int, lengths: list[int]) -> None:
        randoms = Randoms(torch.device("cuda"), torch.bfloat16)
        self._x, self._residual = randoms.normal(num_rows, WIDTH), randoms.normal(num_rows, WIDTH)
        self._weight, self._bias = randoms.normal(WIDTH), randoms.normal(WIDTH)
        self._head_weight = randoms.normal(HEAD_DIM)
        self._positions = randoms.integers(64, num_rows)
        angles = randoms.normal(64, HEAD_DIM // 2, dtype=torch.float32)
        self._cos, self._sin = angles.cos(), angles.sin()
        ends = torch.tensor([0, *lengths, num_rows - sum(lengths)], dtype=torch.int32)
        self.cu_seqlens = ends.cumsum(0, dtype=torch.int32).cuda()

    def run(self, *, pdl: bool) -> tuple[torch.Tensor, ...]:
        x, residual = self._x.clone(), self._residual.clone()
        options: dict[str, Any] = {"eps": 1e-6, "pdl": pdl}
        for _ in range(16):
            y = launchers.add_rms_norm(x, residual, self._weight, **options)
            launchers.qk_norm_rope_(
                y,
                self._positions,
                self._cos,
                self._sin,
                q_weight=self._head_weight,
                k_weight=self._head_weight,
                **HEADS,
                **options,
            )
            launchers.bias_gelu_(y, self._bias, pdl=pdl)
            x = launchers.layer_norm(
                y, self._weight, self._bias, residual=residual, linear_bias=self._bias, **options
            )
        gated = launchers.swiglu(x, pdl=pdl)
        rows = launchers.pool(x, self.cu_seqlens, pooling="mean", normalize=True, pdl=pdl)
        return (x, residual, gated, *rows)


@pytest.mark.gpu
@pytest.mark.parametrize("num_rows", [128, 3000])
def test_replays_have_the_bits_of_plain_launches(num_rows: int) -> None:
    require_compiled()
    chain = Chain(num_rows, [num_rows // 2, 0, num_rows // 3])
    expected = chain.run(pdl=False)
    for _ in range(5):
        assert all(map(torch.equal, chain.run(pdl=True), expected)), "eager"
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = chain.run(pdl=True)
    for _ in range(50):
        graph.replay()
        torch.cuda.synchronize()
        assert all(map(torch.equal, captured, expected)), "replayed"


@pytest.mark.gpu
def test_a_replay_pools_by_the_offsets_of_its_own_time() -> None:
    require_compiled()
    chain = Chain(640, [600])
    chain.cu_seqlens = torch.tensor([0, 600, 600, 600, 640], dtype=torch.int32, device="cuda")
    chain.run(pdl=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = chain.run(pdl=True)
    for offsets in ([0, 1, 2, 3, 640], [0, 0, 640, 640, 640], [0, 64, 128, 500, 640]):
        chain.cu_seqlens.copy_(torch.tensor(offsets, dtype=torch.int32))
        graph.replay()
        torch.cuda.synchronize()
        assert all(map(torch.equal, captured, chain.run(pdl=False)))
