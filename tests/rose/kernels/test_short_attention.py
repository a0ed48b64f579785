"""Attention of short steps, straight from the packed QKV projection."""

from __future__ import annotations

import pytest
import torch

from tests.rose.kernels.devices import Randoms

kernel = pytest.importorskip(
    "hotbed.rose.kernels.short_attention", reason="Triton is not installed"
)


@pytest.fixture(autouse=True)
def _no_bf16_products_in_the_interpreter(device: torch.device, dtype: torch.dtype) -> None:
    if device.type == "cpu" and dtype == torch.bfloat16:
        pytest.skip("Triton 3.6's interpreter multiplies the bits of BF16 as integers")


def offsets(lengths: list[int], device: torch.device) -> torch.Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32, device=device).cumsum(0).int()


def assert_attended(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Weights are rounded to BF16 for the second product, on top of the result's rounding."""
    if got.dtype == torch.float32:
        # The card multiplies fp32 as TF32 unless told otherwise; nobody serves it so.
        atol = 2e-2 if got.is_cuda else 1e-5
        torch.testing.assert_close(got, expected, atol=atol, rtol=1e-2)
    else:
        torch.testing.assert_close(got.float(), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "lengths",
    [[1], [64], [65], [130], [3, 1, 60], [64, 64], [7, 0, 0, 9], [1] * 33, [100, 28]],
    ids=str,
)
def test_matches_the_reference(randoms: Randoms, lengths: list[int], causal: bool) -> None:
    heads = {"num_heads": 4, "num_kv_heads": 2, "scale": 0.25, "causal": causal}
    qkv = randoms.normal(sum(lengths), 8 * 16)
    cu_seqlens = offsets(lengths, qkv.device)
    got = kernel.short_attention(qkv, cu_seqlens, **heads)
    assert got.dtype == qkv.dtype
    assert_attended(got, kernel.reference(qkv, cu_seqlens, **heads))


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim"), [(2, 2, 32), (3, 3, 64), (4, 1, 128)]
)
def test_heads_of_the_models(
    randoms: Randoms, num_heads: int, num_kv_heads: int, head_dim: int
) -> None:
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "scale": head_dim**-0.5}
    qkv = randoms.normal(90, (num_heads + 2 * num_kv_heads) * head_dim)
    cu_seqlens = offsets([80, 10], qkv.device)
    assert_attended(
        kernel.short_attention(qkv, cu_seqlens, **heads),
        kernel.reference(qkv, cu_seqlens, **heads),
    )


@pytest.mark.filterwarnings("ignore:invalid value")  # of NumPy in the interpreter
def test_a_nan_stays_in_its_sequence(randoms: Randoms) -> None:
    heads = {"num_heads": 2, "num_kv_heads": 2, "scale": 0.25}
    qkv = randoms.normal(70, 6 * 16)
    cu_seqlens = offsets([20, 30, 20], qkv.device)
    expected = kernel.short_attention(qkv, cu_seqlens, **heads)
    qkv[20:50] = float("nan")
    got = kernel.short_attention(qkv, cu_seqlens, **heads)
    assert got[20:50].isnan().all()
    assert torch.equal(got[:20], expected[:20])
    assert torch.equal(got[50:], expected[50:])


def test_what_it_would_misread_is_refused(randoms: Randoms) -> None:
    qkv = randoms.normal(8, 6 * 16)
    cu_seqlens = offsets([8], qkv.device)
    with pytest.raises(ValueError, match="power of two"):
        kernel.short_attention(qkv, cu_seqlens, num_heads=5, num_kv_heads=1, scale=1.0)
    with pytest.raises(ValueError, match="dtype"):
        kernel.short_attention(qkv, cu_seqlens.long(), num_heads=2, num_kv_heads=2, scale=1.0)
    with pytest.raises(ValueError, match="at most"):
        kernel.short_attention(
            qkv,
            torch.zeros(2000, dtype=torch.int32, device=qkv.device),
            num_heads=2,
            num_kv_heads=2,
            scale=1.0,
        )
