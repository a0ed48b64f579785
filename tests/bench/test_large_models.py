"""Deferred norms, heads in pairs: the products' references make the rows of the usual layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from hotbed.checkpoint.records import BertConfig, DecoderConfig
from hotbed.core.ragged import RaggedBatch
from hotbed.doctor.plain import random_weights
from hotbed.rose.attention.sdpa import SdpaBackend
from hotbed.rose.batch import PackedBatch, pack
from hotbed.rose.models import bert, bert_weights, decoder
from hotbed.rose.weights import WeightMap

pytest.importorskip("triton")
from bench import large_models
from bench.large_kernels import GELU_FITS, GELU_LIMIT, VARIANTS, References


@pytest.fixture
def batch() -> PackedBatch:
    random = np.random.default_rng(0)
    lengths = (1, 2, 77, 130, 130, 301)
    ids = [random.integers(0, 300, n).astype(np.int32) for n in lengths]
    return pack(RaggedBatch.from_sequences(ids))


def _weights(weight_map: WeightMap) -> dict[str, Tensor]:
    weights = random_weights(weight_map, torch.device("cpu"))
    return {name: tensor.float() for name, tensor in weights.items()}


@pytest.mark.parametrize("causal", [False, True])
def test_a_fused_decoder_gives_the_usual_rows(causal: bool, batch: PackedBatch) -> None:
    config = DecoderConfig(
        vocab_size=300,
        hidden_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128,
        intermediate_size=384,
        max_position_embeddings=512,
        rope_theta=1e4,
        is_causal=causal,
        qk_norm=True,
    )
    weights = _weights(decoder.weight_map(config))
    usual = decoder.Decoder(config, weights, SdpaBackend()).forward(batch)
    fused = large_models.FusedDecoder(config, weights, SdpaBackend(), References()).forward(batch)
    real = slice(batch.num_tokens)
    torch.testing.assert_close(fused[real], usual[real], atol=2e-5, rtol=2e-5)


def test_a_fused_encoder_gives_the_usual_rows(batch: PackedBatch) -> None:
    config = BertConfig(
        vocab_size=300,
        hidden_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=384,
        max_position_embeddings=512,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    weights = _weights(bert_weights.weight_map(config))
    usual = bert.Bert(config, weights, SdpaBackend()).forward(batch)
    fused = large_models.FusedEncoder(config, weights, SdpaBackend(), References()).forward(batch)
    real = slice(batch.num_tokens)
    torch.testing.assert_close(fused[real], usual[real], atol=5e-5, rtol=5e-5)


@pytest.mark.parametrize("tiles", [1, 3, 8])
def test_factors_of_rows_come_from_their_tiles_sums(tiles: int) -> None:
    x = torch.randn(70, tiles, 128) + 0.5
    sums, squares = x.sum(-1), x.square().sum(-1)
    x = x.flatten(1)
    rms = torch.rsqrt(x.square().mean(-1) + 1e-6)[None]
    torch.testing.assert_close(large_models.finish(squares, 128 * tiles, 1e-6).scale, rms)
    norm = large_models.finish(squares, 128 * tiles, 1e-6, sums)
    rstd = torch.rsqrt(x.var(-1, correction=0) + 1e-6)[None]
    torch.testing.assert_close(norm.scale, rstd)
    torch.testing.assert_close(norm.shift, rstd * x.mean(-1)[None])


def test_kernels_lie_in_files_of_their_own_and_the_usual_ones_share_no_k() -> None:
    assert len({variant.file_name for variant in VARIANTS}) == len(VARIANTS)
    usual = {variant.name: variant for variant in reversed(VARIANTS)}
    assert all(variant.split == 1 for variant in usual.values())


@pytest.mark.parametrize(
    ("coefficients", "error"),
    [(GELU_FITS["fit1"], 2.71e-4), (GELU_FITS["fit2"], 2.52e-5), ((0.797885, 0.0356774), 4.74e-4)],
)
def test_gelu_by_a_fitted_tanh_misses_by_what_is_said(
    coefficients: tuple[float, ...], error: float
) -> None:
    x = torch.linspace(-40, 40, 800_001, dtype=torch.float64)
    square = x.square().clamp(max=GELU_LIMIT)
    polynomial = sum(c * square**i for i, c in enumerate(coefficients))
    fitted = x / 2 * (1 + torch.tanh(x * polynomial))
    worst = (fitted - torch.nn.functional.gelu(x)).abs().max()
    assert float(worst) == pytest.approx(error, rel=5e-3)
