"""Linear layers of small steps: how they are cut, what the kernel is told, results on a card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hotbed.rose.kernels.hopper import nvrtc, small_gemm, small_layers
from tests.rose.kernels.hopper.emulator.launcher import emulate, needs_compiler
from tests.rose.kernels.hopper.sources import (
    check_arguments,
    check_products_follow_each_other,
    needs_nvcc,
)

SOURCE = Path(small_gemm.__file__).with_suffix(".cu").read_text()
# bf16 inputs and outputs, sums in fp32: one rounding of the result, one of what is scaled before.
TOLERANCE = 1e-2
EPS = 1e-6
# hidden, heads, kv heads, mlp dim: the 0.6B and 4B shapes, and one that no rule was measured with.
SHAPES = {"0.6b": (1024, 16, 8, 3072), "4b": (2560, 32, 8, 9728), "odd": (384, 3, 3, 832)}
TOKENS = (32, 64, 96, 128, 192, 256)


@pytest.mark.parametrize("num_tokens", TOKENS)
@pytest.mark.parametrize("epilogue", ["qkv", "swiglu", "residual", "project", "gelu", "postnorm"])
@pytest.mark.parametrize("tiles", [3, 16, 32, 48, 152])
@pytest.mark.parametrize("k", [384, 832, 1024, 3072, 9728])
def test_every_token_and_every_k_belong_to_one_block(
    num_tokens: int, epilogue: str, tiles: int, k: int
) -> None:
    tiling = small_gemm.tiling_of(epilogue, tiles, k, num_tokens)
    tokens, rest = divmod(num_tokens, tiling.token_split)
    assert rest == 0
    assert tokens % small_gemm.TOKEN_MULTIPLE == 0
    assert tokens % tiling.split == 0, "each block of a cluster ends its share of the tokens"
    assert k // 64 % tiling.split == 0
    assert 1 <= tiling.stages <= k // 64 // tiling.split
    features = 64 if epilogue in ("residual", "postnorm") else 128
    assert tiling.stages * 128 * (features + tokens) <= 226 * 1024


def test_the_launcher_and_the_kernel_mean_the_same_arguments() -> None:
    check_arguments(small_gemm._Args, SOURCE)


@needs_nvcc
@pytest.mark.parametrize("num_tokens", [32, 128])
@pytest.mark.parametrize("epilogue", ["qkv", "swiglu", "residual", "project", "gelu", "postnorm"])
def test_the_compiler_lets_products_follow_each_other(
    num_tokens: int, epilogue: str, tmp_path: Path
) -> None:
    tiling = small_gemm.tiling_of(epilogue, 16, 1024, num_tokens)
    kernel = small_gemm.Kernel(
        num_tokens // tiling.token_split,
        small_gemm._FEATURES[epilogue],
        tiling.split,
        tiling.stages,
        epilogue,
        16,
    )
    check_products_follow_each_other(kernel.prologue() + SOURCE, tmp_path)


def test_elsewhere_the_kernels_say_why_they_do_not_run() -> None:
    assert nvrtc.missing(torch.device("cpu")) == "they run on CUDA, not on cpu"


@needs_compiler
@pytest.mark.parametrize("num_tokens", [32, 192])
def test_in_the_emulator_each_epilogue_equals_its_reference(
    num_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch, small_gemm)
    layer = Layer(*SHAPES["odd"], torch.device("cpu"))
    for got, expected in layer.run(num_tokens):
        scale = expected.abs().max()
        assert (got.float() - expected).abs().max() <= TOLERANCE * scale


@pytest.mark.gpu
class TestOnACard:
    @pytest.fixture(params=SHAPES)
    def layer(self, request: pytest.FixtureRequest) -> Layer:
        device = torch.device("cuda")
        if (reason := nvrtc.missing(device)) is not None:
            pytest.skip(reason)
        return Layer(*SHAPES[request.param], device)

    @pytest.mark.parametrize("num_tokens", TOKENS)
    def test_each_epilogue_equals_its_reference(self, layer: Layer, num_tokens: int) -> None:
        for got, expected in layer.run(num_tokens):
            scale = expected.abs().max()
            assert (got.float() - expected).abs().max() <= TOLERANCE * scale

    def test_a_token_of_nan_stays_alone(self, layer: Layer) -> None:
        stream = layer.stream(64)
        clean = layer.qkv(stream, 64), small_layers.swiglu(layer.gate_up, stream, eps=EPS)
        stream.scaled[7] = stream.sums[7] = float("nan")
        dirty = layer.qkv(stream, 64), small_layers.swiglu(layer.gate_up, stream, eps=EPS)
        others = torch.arange(64, device="cuda") != 7
        for before, after in zip(clean, dirty, strict=True):
            assert after[7].isnan().all()
            assert torch.equal(before[others], after[others])


class Layer:
    """Random weights of one layer, and its four projections."""

    def __init__(self, d: int, heads: int, kv_heads: int, f: int, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(0)
        self.device, self.d, self.f = device, d, f
        self.heads, self.kv_heads = heads, kv_heads
        h = small_gemm.HEAD_DIM
        self.qkv_layer = self.gemm((heads + 2 * kv_heads) * h, d, "qkv")
        self.out = self.gemm(d, heads * h, "residual")
        self.gate_up = self.gemm(2 * f, d, "swiglu")
        self.down = self.gemm(d, f, "residual")
        self.norm = 1 + 0.1 * self.normal(d)
        self.q_norm, self.k_norm = 1 + 0.1 * self.normal(h), 1 + 0.1 * self.normal(h)
        self.norm_bias, self.bias = 0.1 * self.normal(d), 0.1 * self.normal(d)
        self.up_bias = 0.1 * self.normal(2 * f)
        self.project = small_gemm.SmallGemm(self.gate_up.weight, "project")
        self.up = small_gemm.SmallGemm(self.gate_up.weight, "gelu")
        self.post = small_gemm.SmallGemm(self.down.weight, "postnorm")
        self.table = self.normal(100, d)
        angles = torch.rand(300, h // 2, device=device) * 6
        self.cos, self.sin = angles.cos(), angles.sin()

    def normal(self, *shape: int) -> torch.Tensor:
        values = torch.randn(*shape, generator=self.generator, device=self.device)
        return values.bfloat16()

    def gemm(self, n: int, k: int, epilogue: str) -> small_gemm.SmallGemm:
        return small_gemm.SmallGemm((self.normal(n, k) / k**0.5).contiguous(), epilogue)

    def ids(self, num_tokens: int) -> torch.Tensor:
        return torch.arange(num_tokens, device=self.device, dtype=torch.int32) % 100

    def stream(self, num_tokens: int) -> small_gemm.Stream:
        stream = small_gemm.Stream.empty(num_tokens, self.d, self.device)
        small_layers.embed(self.table, self.ids(num_tokens), stream, next_weight=self.norm)
        return stream

    def rotation(self, num_tokens: int) -> dict[str, Any]:
        positions = self.ids(num_tokens).flip(0).contiguous()
        return {"cos": self.cos, "sin": self.sin, "positions": positions}

    def qkv(self, stream: small_gemm.Stream, num_tokens: int) -> torch.Tensor:
        return small_layers.qkv(
            self.qkv_layer,
            stream,
            eps=EPS,
            q_weight=self.q_norm,
            k_weight=self.k_norm,
            head_eps=EPS,
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            **self.rotation(num_tokens),
        )

    def run(self, num_tokens: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(result, fp32 reference) of the embedding and the four projections."""
        pairs = []

        def renewed(stream: small_gemm.Stream, expected: torch.Tensor) -> None:
            pairs.append((stream.rows.clone(), expected))
            pairs.append((stream.scaled.clone(), expected * self.norm.float()))
            sums = stream.sums.sum(1).clone()
            rows = stream.rows.float()
            pairs.append((sums[:, 0], rows.sum(1)))
            pairs.append((sums[:, 1], rows.square().sum(1)))

        stream, ids = self.stream(num_tokens), self.ids(num_tokens)
        second = (self.table, ids.flip(0).contiguous())
        small_layers.embed(self.table, ids, stream, next_weight=self.norm, second=second)
        renewed(stream, self.table[ids].float() + self.table[ids.flip(0)].float())
        small_layers.embed(self.table, ids, stream, next_weight=self.norm)
        renewed(stream, self.table[ids].float())
        from hotbed.rose.kernels import qk_norm_rope

        projected = F.linear(
            small_layers.rms_reference(stream.rows, self.norm, eps=EPS),
            self.qkv_layer.weight.float(),
        )
        expected = qk_norm_rope.reference(
            projected,
            **self.rotation(num_tokens),
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            q_weight=self.q_norm,
            k_weight=self.k_norm,
            eps=EPS,
        )
        pairs.append((self.qkv(stream, num_tokens), expected))
        for layer, x in (
            (self.out, self.normal(num_tokens, self.heads * small_gemm.HEAD_DIM)),
            (self.down, self.normal(num_tokens, self.f)),
        ):
            before = stream.rows.float()
            small_layers.add_(layer, x, stream, next_weight=self.norm)
            renewed(stream, before + F.linear(x.float(), layer.weight.float()))
        expected = small_layers.swiglu_reference(
            stream.rows, self.norm, self.gate_up.weight, eps=EPS
        )
        pairs.append((small_layers.swiglu(self.gate_up, stream, eps=EPS), expected))

        def normed(rows: torch.Tensor) -> torch.Tensor:
            return small_layers.layer_reference(rows, self.norm, self.norm_bias, eps=EPS)

        weight, bias = self.gate_up.weight, self.up_bias
        mean_part, shift = small_layers.deferred_layer_norm(weight, bias, self.norm, self.norm_bias)
        expected = F.linear(normed(stream.rows), weight.float(), bias.float())
        for layer, activated in ((self.project, expected), (self.up, F.gelu(expected))):
            got = small_layers.project(layer, stream, mean_part=mean_part, shift=shift, eps=EPS)
            pairs.append((got, activated))
        x = self.normal(num_tokens, self.f)
        expected = normed(stream.rows) + F.linear(
            x.float(), self.post.weight.float(), self.bias.float()
        )
        small_layers.postnorm_(
            self.post,
            x,
            stream,
            bias=self.bias,
            norm_weight=self.norm,
            norm_bias=self.norm_bias,
            next_weight=self.norm,
            eps=EPS,
        )
        renewed(stream, expected)
        return pairs
