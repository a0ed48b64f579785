"""Layers and whole models on the kernels give what they give in plain torch.

In the interpreter, `runs_on_kernels` is made to say yes for CPU tensors; on a card it is true.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from hotbed.checkpoint.records import (
    BertConfig,
    DebertaConfig,
    DecoderConfig,
    Gemma3Config,
    JinaBertConfig,
    ModernBertConfig,
    MpnetConfig,
    RotaryBertConfig,
    T5Config,
)
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.ragged import RaggedBatch
from hotbed.core.rope import DynamicScaling
from hotbed.rose.attention.sdpa import SdpaBackend
from hotbed.rose.batch import PackedBatch, pack
from hotbed.rose.layers import fused
from hotbed.rose.layers.embedding import NormedEmbedding
from hotbed.rose.layers.linear import Activation, Linear
from hotbed.rose.layers.mlp import GatedMlp, Mlp
from hotbed.rose.layers.norm import LayerNorm, LinearThenNorm, RMSNorm
from hotbed.rose.layers.pool import pool, pool_rows
from hotbed.rose.layers.rotary import Rotary
from hotbed.rose.registry import FAMILIES
from tests.rose.kernels.devices import Randoms

WIDTH, INNER = 64, 96
EPS = 1e-6

MODERNBERT = ModernBertConfig(
    vocab_size=60,
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=96,
    max_position_embeddings=32,
    global_theta=160_000.0,
    local_theta=10_000.0,
    window=2,
    is_local=(False, True, True),
)
GEMMA3 = Gemma3Config(
    vocab_size=60,
    hidden_size=WIDTH,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=INNER,
    max_position_embeddings=64,
    global_theta=1e6,
    local_theta=1e4,
    window=2,
    is_local=(True, False),
    is_causal=False,
)
# Encoders with two heads differ in what stands behind these.
ENCODER: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": INNER,
    "max_position_embeddings": 64,
}
MPNET = MpnetConfig(**ENCODER | {"max_position_embeddings": 66})
DEBERTA = DebertaConfig(
    **ENCODER,
    position_buckets=4,  # so that texts of 9 tokens go past those of their own
)
JINA = JinaBertConfig(**ENCODER)
T5 = T5Config(**ENCODER, head_dim=32)
NOMIC = RotaryBertConfig(
    **ENCODER,
    rope_theta=1000.0,
    gate="silu",
    naming="nomic",
)
QWEN3 = DecoderConfig(
    vocab_size=50,
    hidden_size=WIDTH,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=INNER,
    max_position_embeddings=64,
    rope_theta=1e6,
    qk_norm=True,
)
BERT = BertConfig(
    vocab_size=50,
    hidden_size=WIDTH,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=INNER,
    max_position_embeddings=64,
)


@pytest.fixture
def fp32(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Randoms:
    """fp32 tensors that layers take to the kernels, whatever the device."""
    monkeypatch.setattr(fused, "runs_on_kernels", lambda weight: True)
    return Randoms(device, torch.float32)


class Plain:
    """Builds a layer that does not use the kernels, on the CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, make: Any, *tensors: torch.Tensor, **options: Any) -> Any:
        with self._monkeypatch.context() as patch:
            patch.setattr(fused, "runs_on_kernels", lambda weight: False)
            options = {
                name: value.cpu() if isinstance(value, torch.Tensor) else value
                for name, value in options.items()
            }
            return make(*(t.cpu() for t in tensors), **options)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Plain:
    return Plain(monkeypatch)


def _assert_close(got: torch.Tensor, expected: torch.Tensor) -> None:
    # fp32 on both sides, sums of up to 96 products in another order.
    torch.testing.assert_close(got.cpu(), expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("activation", ["none", "gelu", "relu", "silu"])
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_linear(fp32: Randoms, plain: Plain, activation: Activation, with_bias: bool) -> None:
    x, w = fp32.normal(5, WIDTH), fp32.normal(INNER, WIDTH) / 8
    b = fp32.normal(INNER) if with_bias else None
    layer = Linear(w, b, activation=activation)
    assert layer.kernels is not None
    expected = plain(Linear, w, bias=b, activation=activation)(x.cpu())
    _assert_close(layer(x), expected)


@pytest.mark.gpu
def test_tanh_gelu_in_cublas_epilogue(fp32: Randoms, plain: Plain) -> None:
    """On a CPU, torch's operator of the same name computes the exact form."""
    if fp32.device.type == "cpu":
        pytest.skip("needs a card")
    x, w, b = fp32.normal(5, WIDTH), fp32.normal(INNER, WIDTH) / 8, fp32.normal(INNER)
    expected = plain(Linear, w, bias=b, activation="gelu_tanh")(x.cpu())
    _assert_close(Linear(w, b, activation="gelu_tanh")(x), expected)


@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_linear_adds_onto_the_residual(fp32: Randoms, plain: Plain, with_bias: bool) -> None:
    x, w, residual = fp32.normal(5, WIDTH), fp32.normal(INNER, WIDTH) / 8, fp32.normal(5, INNER)
    b = fp32.normal(INNER) if with_bias else None
    expected = plain(Linear, w, bias=b)(x.cpu(), residual.cpu())
    got = Linear(w, b)(x, residual)
    assert got.data_ptr() == residual.data_ptr(), "no copy of the residual"
    _assert_close(got, expected)


def test_norms(fp32: Randoms, plain: Plain) -> None:
    x, w, b = fp32.normal(5, WIDTH), fp32.normal(WIDTH), fp32.normal(WIDTH)
    _assert_close(RMSNorm(w, eps=EPS)(x), plain(RMSNorm, w, eps=EPS)(x.cpu()))
    _assert_close(LayerNorm(w, b, eps=EPS)(x), plain(LayerNorm, w, b, eps=EPS)(x.cpu()))


def test_linear_then_norm(fp32: Randoms, plain: Plain) -> None:
    x, residual = fp32.normal(5, INNER), fp32.normal(5, WIDTH)
    w, b = fp32.normal(WIDTH, INNER) / 8, fp32.normal(WIDTH)
    norm = {"norm_weight": fp32.normal(WIDTH), "norm_bias": fp32.normal(WIDTH), "eps": EPS}
    expected = plain(LinearThenNorm, w, b, **norm)(x.cpu(), residual.cpu())
    before = residual.clone()
    _assert_close(LinearThenNorm(w, b, **norm)(x, residual), expected)
    assert torch.equal(residual, before)


def test_embedding(fp32: Randoms, plain: Plain) -> None:
    tables = fp32.normal(20, WIDTH), fp32.normal(9, WIDTH)
    norm = {"norm_weight": fp32.normal(WIDTH), "norm_bias": fp32.normal(WIDTH), "eps": EPS}
    ids, positions = fp32.integers(20, 7), fp32.integers(9, 7)
    expected = plain(NormedEmbedding, *tables, **norm)(ids.cpu(), positions.cpu())
    _assert_close(NormedEmbedding(*tables, **norm)(ids, positions), expected)


def test_mlps(fp32: Randoms, plain: Plain) -> None:
    x, residual = fp32.normal(5, WIDTH), fp32.normal(5, WIDTH)
    gate_up, down = fp32.normal(2 * INNER, WIDTH) / 8, fp32.normal(WIDTH, INNER) / 8
    up = gate_up[:INNER].contiguous()
    for gate in ("silu", "gelu", "gelu_tanh"):
        expected = GatedMlp(plain(Linear, gate_up), plain(Linear, down), gate)(
            x.cpu(), residual.cpu()
        )
        got = GatedMlp(Linear(gate_up), Linear(down), gate)(x, residual.clone())
        _assert_close(got, expected)
    expected = Mlp(plain(Linear, up, activation="gelu"), plain(Linear, down))(
        x.cpu(), residual.cpu()
    )
    _assert_close(Mlp(Linear(up, activation="gelu"), Linear(down))(x, residual.clone()), expected)


def _batch(lengths: list[int], num_pad_rows: int, device: torch.device) -> PackedBatch:
    """As on a GPU, the pad rows in a slot of their own, but with groups for SDPA."""
    random = np.random.default_rng(0)
    packed = pack(RaggedBatch.from_sequences([random.integers(1, 50, n) for n in lengths]))
    num_tokens, num_rows = packed.num_tokens, packed.num_tokens + num_pad_rows
    fields = {name: torch.zeros(num_rows, dtype=torch.int32) for name in ("token_ids", "positions")}
    for name, padded in fields.items():
        padded[:num_tokens] = getattr(packed, name)[:num_tokens]
    ends = torch.tensor([num_tokens, num_rows], dtype=torch.int32)
    return PackedBatch(
        token_ids=fields["token_ids"].to(device),
        positions=fields["positions"].to(device),
        num_tokens=num_tokens,
        cu_seqlens=torch.cat((packed.cu_seqlens, ends)).to(device),  # one slot without tokens
        max_seqlen=packed.max_seqlen,
        groups=packed.groups,
        restore=packed.restore,
    )


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_pooling(fp32: Randoms, pooling: Any) -> None:
    lengths = [70, 3, 3, 1]
    batch = _batch(lengths, 4, fp32.device)
    x = fp32.normal(sum(lengths) + 4, WIDTH)
    x[sum(lengths) :] = float("nan")
    rows = pool_rows(x, batch, pooling, normalize=True)
    expected = pool(x.cpu(), batch, pooling)
    _assert_close(rows.pooled[:4], expected)
    _assert_close(rows.default_form[:4], torch.nn.functional.normalize(expected, dim=-1))
    assert rows.pooled[4].eq(0).all(), "the slot without tokens"
    assert rows.finite.tolist() == [1] * 5


def test_pooling_of_spans(fp32: Randoms) -> None:
    """Gaps, empty spans, and room for spans that is not used."""
    lengths = [9, 4, 4, 1]
    x = fp32.normal(sum(lengths) + 6, 64)
    x[sum(lengths) :] = float("nan")
    bounds = [(1, 4), (5, 5), (6, 9), (9, 13), (14, 18), (18, 18), (18, 18), (18, 18)]
    offsets = [0, *(edge for bound in bounds for edge in bound), len(x)]
    batch = dataclasses.replace(
        _batch(lengths, 6, fp32.device),
        row_offsets=torch.tensor(offsets, dtype=torch.int32, device=fp32.device),
    )
    rows = pool_rows(x, batch, "mean", normalize=True)
    expected = pool(x.cpu(), batch, "mean")
    _assert_close(rows.pooled, expected)
    _assert_close(rows.default_form, torch.nn.functional.normalize(expected, dim=-1))
    assert rows.pooled[1].eq(0).all()
    assert rows.finite.tolist() == [1] * len(bounds)


MODELS = {
    "qwen3": ("decoder", QWEN3),
    "qwen3 bidirectional": ("decoder", msgspec.structs.replace(QWEN3, is_causal=False)),
    "llama": ("decoder", msgspec.structs.replace(QWEN3, qk_norm=False)),
    "qwen2": ("decoder", msgspec.structs.replace(QWEN3, qk_norm=False, qkv_bias=True)),
    "mistral": ("decoder", msgspec.structs.replace(QWEN3, qk_norm=False, window=2)),
    "bert": ("bert", BERT),
    "modernbert": ("modernbert", MODERNBERT),
    "gemma3": ("gemma3", GEMMA3),
    "mpnet": ("mpnet", MPNET),
    "deberta": ("deberta", DEBERTA),
    "jina_bert": ("jina_bert", JINA),
    "t5": ("t5", T5),
    "t5 gated": ("t5", msgspec.structs.replace(T5, is_gated=True)),
    "nomic": ("rotary_bert", NOMIC),
    # Of the texts that it is tested with one is longer than 5 tokens.
    "nomic dynamic": (
        "rotary_bert",
        msgspec.structs.replace(
            NOMIC, rope_scaling=DynamicScaling(factor=2.0, original_max_position_embeddings=5)
        ),
    ),
    "gte": ("rotary_bert", msgspec.structs.replace(NOMIC, naming="gte", gate="gelu")),
    "gte without token types": (
        "rotary_bert",
        msgspec.structs.replace(NOMIC, naming="gte", gate="gelu", type_vocab_size=0),
    ),
    "bert relu": ("bert", msgspec.structs.replace(BERT, hidden_act="relu")),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_whole_model(name: str, fp32: Randoms, plain: Plain) -> None:
    family_name, config = MODELS[name]
    family = FAMILIES[family_name]
    weights = _weights(family.weight_map(config), fp32)
    backends = [SdpaBackend() for _ in family.attention_specs(config)]
    cpu_weights = {name: tensor.cpu() for name, tensor in weights.items()}
    lengths = [9, 4, 4, 1]
    cpu_batch = _batch(lengths, 3, torch.device("cpu"))
    with torch.inference_mode():
        expected = plain(lambda: family.build(config, cpu_weights, backends))
        states = expected.forward(cpu_batch)[: sum(lengths)]
        model = family.build(config, weights, backends)
        got = model.forward(_batch(lengths, 3, fp32.device))
    assert got.isfinite().all(), "pad rows too"
    # Two layers of unit-scale states: twice what one layer may be off.
    torch.testing.assert_close(got[: sum(lengths)].cpu(), states, atol=1e-4, rtol=1e-4)


def _weights(weight_map: Any, randoms: Randoms) -> dict[str, torch.Tensor]:
    weights = {}
    for name, parameter in weight_map.parameters.items():
        values = randoms.normal(*parameter.shape)
        if "norm" in name and not name.endswith("bias"):
            values = 1 + 0.1 * values
        elif len(parameter.shape) == 2 and name.startswith("layers."):
            values = values / parameter.shape[1] ** 0.5
        weights[name] = values
    return weights


def test_a_shape_no_kernel_takes_is_refused_when_the_layer_is_built(fp32: Randoms) -> None:
    odd = fp32.normal(60)
    for make in (
        lambda: RMSNorm(odd, eps=EPS),
        lambda: LayerNorm(odd, odd, eps=EPS),
        lambda: Linear(fp32.normal(60, 8), activation="gelu"),
        lambda: GatedMlp(Linear(fp32.normal(120, 8)), Linear(fp32.normal(8, 60))),
        lambda: Rotary(head_dim=40, theta=1e4, max_positions=8, device=fp32.device),
    ):
        with pytest.raises(HotbedError, match="on a GPU it must be a multiple of") as raised:
            make()
        assert raised.value.code is ErrorCode.INVALID_INPUT


def test_without_triton_a_model_on_a_gpu_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fused, "runs_on_kernels", lambda weight: True)
    monkeypatch.setitem(sys.modules, "triton", None)
    for name in [name for name in sys.modules if name.startswith("hotbed.rose.kernels")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(HotbedError, match=r"install hotbed\[gpu\]"):
        RMSNorm(torch.ones(64), eps=EPS)


def test_on_a_cpu_no_kernel_is_imported() -> None:
    assert RMSNorm(torch.ones(64), eps=EPS)._kernels is None
    assert Linear(torch.ones(8, 8)).kernels is None
