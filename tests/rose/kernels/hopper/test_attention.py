"""Attention of small steps in CUDA C++: what the launcher asks for, results on a card."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from hotbed.rose.kernels import short_attention
from hotbed.rose.kernels.hopper import attention, nvrtc

# heads, kv heads, head dim: of the 0.6B and 4B shapes, bge-m3's, and the smallest.
HEADS = [(16, 8, 128), (32, 8, 128), (16, 16, 64), (1, 1, 64)]
LENGTHS = [[1], [31], [32], [33], [128], [129], [256], [5, 1, 90, 33, 127], [1] * 70, [64, 64]]


@pytest.mark.parametrize(("head_dim", "num_slots"), [(32, 1), (96, 1), (128, 257), (64, 0)])
def test_shapes_without_a_kernel_are_refused(head_dim: int, num_slots: int) -> None:
    qkv = torch.zeros(4, 3 * head_dim, dtype=torch.bfloat16)
    offsets = torch.zeros(num_slots + 1, dtype=torch.int32)
    with pytest.raises(ValueError, match=f"heads of {head_dim}, {num_slots} slots"):
        attention.attention(qkv, offsets, num_heads=1, num_kv_heads=1, scale=1.0)


@pytest.mark.gpu
class TestOnACard:
    @pytest.fixture(autouse=True)
    def _device(self) -> None:
        if (reason := nvrtc.missing(torch.device("cuda"))) is not None:
            pytest.skip(reason)

    @pytest.mark.parametrize("heads", HEADS)
    @pytest.mark.parametrize("lengths", LENGTHS, ids=str)
    @pytest.mark.parametrize("causal", [False, True])
    def test_it_equals_its_reference(
        self, heads: tuple[int, int, int], lengths: list[int], causal: bool
    ) -> None:
        qkv, arguments = _inputs(heads, sum(lengths), causal=causal)
        got = attention.attention(qkv, _offsets([*lengths, 0, 0]), **arguments)
        expected = short_attention.reference(qkv, _offsets(lengths), **arguments)
        torch.testing.assert_close(got.float(), expected, atol=2e-2, rtol=2**-7)

    def test_nan_stays_in_its_sequence_and_padding_is_not_read(self) -> None:
        qkv, arguments = _inputs((16, 8, 128), 96, causal=False)
        clean = attention.attention(qkv, _offsets([40, 9, 47]), **arguments)
        qkv[44] = float("nan")
        dirty = attention.attention(qkv, _offsets([40, 9, 47]), **arguments)
        assert dirty[40:49].isnan().all()
        assert torch.equal(clean[:40], dirty[:40])
        assert torch.equal(clean[49:], dirty[49:])

    def test_twice_the_same_bytes(self) -> None:
        qkv, arguments = _inputs((16, 16, 64), 200, causal=True)
        rows = [attention.attention(qkv, _offsets([150, 50]), **arguments) for _ in range(2)]
        assert torch.equal(*rows)


def _inputs(
    heads: tuple[int, int, int], num_tokens: int, *, causal: bool
) -> tuple[torch.Tensor, dict[str, float]]:
    num_heads, num_kv_heads, head_dim = heads
    generator = torch.Generator("cuda").manual_seed(0)
    width = (num_heads + 2 * num_kv_heads) * head_dim
    qkv = torch.randn(num_tokens, width, generator=generator, device="cuda").bfloat16()
    return qkv, {
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "scale": 1 / math.sqrt(head_dim),
        "causal": causal,
    }


def _offsets(lengths: list[int]) -> torch.Tensor:
    offsets = [0, *itertools.accumulate(lengths)]
    return torch.tensor(offsets, dtype=torch.int32, device="cuda")
