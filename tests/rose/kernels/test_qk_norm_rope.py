"""Norm and rotation of q and k inside the packed QKV projection."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hotbed.core.errors import HotbedError
from tests.rose.kernels.devices import Randoms, assert_close

kernel = pytest.importorskip("hotbed.rose.kernels.qk_norm_rope", reason="Triton is not installed")

# N, K, H: the models' (0.6B, 4B, MiniLM's, bge's), heads that do not fill a program, programs that
# hold both q and k, head dims that are no power of two, the largest.
SHAPES = [
    (16, 8, 128),
    (32, 8, 128),
    (12, 12, 32),
    (16, 16, 64),
    (1, 1, 16),
    (5, 1, 32),
    (3, 3, 96),
    (2, 1, 256),
]
MAX_POSITIONS = 40


def _inputs(randoms: Randoms, shape: tuple[int, int, int], num_rows: int) -> dict[str, Any]:
    n, k, h = shape
    angles = randoms.normal(MAX_POSITIONS, h // 2, dtype=torch.float32) * 3
    return {
        "qkv": randoms.normal(num_rows, (n + 2 * k) * h),
        "positions": randoms.integers(MAX_POSITIONS, num_rows),
        "cos": angles.cos(),
        "sin": angles.sin(),
        "num_heads": n,
        "num_kv_heads": k,
    }


def _norm(randoms: Randoms, head_dim: int) -> dict[str, Any]:
    return {
        "q_weight": randoms.normal(head_dim),
        "k_weight": randoms.normal(head_dim),
        "eps": 1e-6,
    }


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize("with_norm", [False, True], ids=["rotary only", "norm"])
def test_matches_the_reference(
    randoms: Randoms, shape: tuple[int, int, int], num_rows: int, with_norm: bool
) -> None:
    inputs = _inputs(randoms, shape, num_rows) | (_norm(randoms, shape[2]) if with_norm else {})
    whole = torch.cat((inputs["qkv"][:1], inputs["qkv"], inputs["qkv"][-1:]))
    before = whole.clone()
    got = kernel.qk_norm_rope_(**inputs | {"qkv": whole[1:-1]})
    assert got.data_ptr() == whole[1:-1].data_ptr()
    assert_close(got, kernel.reference(**inputs))
    assert torch.equal(whole[[0, -1]], before[[0, -1]]), "rows around it"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_head_has_the_same_bits_whatever_heads_its_program_goes_over(
    randoms: Randoms, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few tokens and many are cut differently; an invariant model's rows may not show it."""
    inputs = _inputs(randoms, shape, 5) | _norm(randoms, shape[2])
    few = kernel.qk_norm_rope_(**inputs | {"qkv": inputs["qkv"].clone()})
    expected = kernel.reference(**inputs)
    choose = kernel._heads
    monkeypatch.setattr(kernel, "_heads", lambda n, k, _: choose(n, k, 100_000))
    many = kernel.qk_norm_rope_(**inputs)
    assert_close(many, expected)
    assert torch.equal(few, many)


def test_programs_go_over_more_heads_where_tokens_are_many() -> None:
    assert [kernel._heads(16, 8, n) for n in (1, 128, 256, 1024)] == [2, 2, 4, 8]
    assert [kernel._heads(32, 8, n) for n in (1, 256, 1024)] == [2, 4, 8]
    assert kernel._heads(5, 1, 1024) == 1, "heads of one kind a program"
    assert kernel._heads(12, 12, 1024) == 6


def test_v_is_not_touched(randoms: Randoms) -> None:
    inputs = _inputs(randoms, (5, 3, 32), 4) | _norm(randoms, 32)
    v = inputs["qkv"][:, 8 * 32 :].clone()
    v[0] = float("nan")
    inputs["qkv"][:, 8 * 32 :] = v
    kernel.qk_norm_rope_(**inputs)
    assert torch.equal(inputs["qkv"][1:, 8 * 32 :], v[1:])
    assert inputs["qkv"][0, 8 * 32 :].isnan().all()
    assert inputs["qkv"][:, : 8 * 32].isfinite().all()


def test_rotation_keeps_a_heads_length(randoms: Randoms) -> None:
    inputs = _inputs(randoms, (2, 1, 64), 6)
    before = inputs["qkv"].float().view(6, 4, 64).norm(dim=-1)
    after = kernel.qk_norm_rope_(**inputs).float().view(6, 4, 64).norm(dim=-1)
    torch.testing.assert_close(after, before, rtol=2**-7, atol=0)


def test_scores_depend_on_the_distance_alone(randoms: Randoms) -> None:
    h, step = 32, torch.arange(MAX_POSITIONS, dtype=torch.float32, device=randoms.device)
    angles = torch.outer(step, 10_000 ** (-torch.arange(0, h, 2, device=step.device) / h))
    row = randoms.normal(1, 3 * h, dtype=torch.float32)

    def score(q_at: int, k_at: int) -> float:
        positions = torch.tensor([q_at, k_at], dtype=torch.int32, device=step.device)
        rotated = kernel.qk_norm_rope_(
            row.repeat(2, 1), positions, angles.cos(), angles.sin(), num_heads=1, num_kv_heads=1
        )
        return (rotated[0, :h] @ rotated[1, h : 2 * h]).item()

    assert score(3, 8) == pytest.approx(score(30, 35), rel=1e-4)


def test_what_it_would_misread_is_refused(randoms: Randoms) -> None:
    inputs = _inputs(randoms, (2, 1, 32), 4)
    norm = _norm(randoms, 32)
    with pytest.raises(ValueError, match="contiguous"):
        kernel.qk_norm_rope_(**inputs | {"qkv": inputs["qkv"].T.contiguous().T})
    with pytest.raises(ValueError, match="heads of a multiple of 16"):
        kernel.qk_norm_rope_(**inputs | {"num_heads": 3})
    with pytest.raises(ValueError, match="positions"):
        kernel.qk_norm_rope_(**inputs | {"positions": inputs["positions"].long()})
    with pytest.raises(ValueError, match="float32 with rows of 16"):
        kernel.qk_norm_rope_(
            **inputs | {part: inputs[part].repeat(1, 2) for part in ("cos", "sin")}
        )
    with pytest.raises(ValueError, match="together"):
        kernel.qk_norm_rope_(**inputs, q_weight=norm["q_weight"])


def test_a_head_dim_it_does_not_take_is_refused_at_load() -> None:
    for head_dim in (8, 40, 272):
        with pytest.raises(HotbedError, match=f"head_dim of {head_dim}"):
            kernel.check_head_dim(head_dim)
    kernel.check_head_dim(128)


def test_bytes_moved() -> None:
    assert kernel.bytes_moved(10, 16, 8, 128) == 10 * (2 * 24 * 128 * 2 + 2 * 64 * 4)
