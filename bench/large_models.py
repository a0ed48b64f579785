"""Decoder and encoder of `bench.shapes` by the products of `bench.large_kernels`.

Weights are copies with the norms' in them. On a CPU, in Triton's interpreter and with the products'
references, tests hold them to the usual layers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bench.large_kernels import HEAD_DIM, Columns, Products, Rows, in_pairs
from hotbed.checkpoint.records import BertConfig, DecoderConfig
from hotbed.rose.attention.backend import AttentionBackend
from hotbed.rose.batch import PackedBatch
from hotbed.rose.kernels.launch import default_pdl
from hotbed.rose.layers.norm import LayerNorm, RMSNorm
from hotbed.rose.layers.rotary_scaling import plain_frequencies
from hotbed.rose.models import bert, decoder

_BLOCK_ROWS = 64


@triton.jit(do_not_specialize=["num_rows"])
def _finish_kernel(  # type: ignore[no-untyped-def]
    sums_ptr,
    squares_ptr,
    scale_ptr,
    shift_ptr,
    num_rows,
    eps,
    width: tl.constexpr,
    tiles: tl.constexpr,
    block: tl.constexpr,
    block_rows: tl.constexpr,
    with_mean: tl.constexpr,
    pdl: tl.constexpr,
):
    if pdl:
        gdc_wait()
        gdc_launch_dependents()
    rows = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    cols = tl.arange(0, block)
    in_step = rows < num_rows
    mask = in_step[:, None] & (cols < tiles)[None, :]
    offsets = rows[:, None] * tiles + cols[None, :]
    variance = tl.sum(tl.load(squares_ptr + offsets, mask=mask, other=0.0), axis=1) / width
    if with_mean:
        mean = tl.sum(tl.load(sums_ptr + offsets, mask=mask, other=0.0), axis=1) / width
        variance -= mean * mean
        tl.store(shift_ptr + rows, mean * tl.rsqrt(variance + eps), mask=in_step)
    tl.store(scale_ptr + rows, tl.rsqrt(variance + eps), mask=in_step)


def finish(squares: Tensor, width: int, eps: float, sums: Tensor | None = None) -> Rows:
    """What rows of `width` with these sums by tile, fp32 [T, n], are to be scaled and shifted by.

    Without `sums` it is RMSNorm's scale, and the shift is not written.
    """
    num_rows, tiles = squares.shape
    pdl = default_pdl(squares.device)
    scale, shift = squares.new_empty(1, num_rows), squares.new_empty(1, num_rows)
    _finish_kernel[(triton.cdiv(num_rows, _BLOCK_ROWS),)](
        squares if sums is None else sums,
        squares,
        scale,
        shift,
        num_rows,
        eps,
        width,
        tiles,
        triton.next_power_of_2(tiles),
        _BLOCK_ROWS,
        sums is not None,
        pdl,
        launch_pdl=pdl,
    )
    return Rows(scale, shift)


class FusedDecoder:
    """`decoder.Decoder` of Qwen3's kind."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: dict[str, Tensor],
        backend: AttentionBackend,
        products: Products,
    ) -> None:
        self._config, self._backend, self._products = config, backend, products
        self._spec, self._word = decoder.attention_spec(config), weights["word"]
        heads, kv = config.num_attention_heads, config.num_key_value_heads
        turned = (heads + kv) * HEAD_DIM
        frequencies = plain_frequencies(HEAD_DIM, config.rope_theta, self._word.device)
        self._layers = []
        for i in range(config.num_hidden_layers):
            w = {k.removeprefix(f"layers.{i}."): v for k, v in weights.items()}
            qkv = _times(w["qkv.weight"], w["attention_norm"])
            self._layers.append(
                (
                    torch.cat([in_pairs(qkv[:turned]), qkv[turned:]]),
                    Columns.of(frequencies, w["q_norm"], w["k_norm"], heads, kv),
                    w["out.weight"],
                    _times(w["gate_up.weight"], w["mlp_norm"]),
                    w["down.weight"],
                )
            )
        self._final_norm = RMSNorm(weights["final_norm"], eps=config.rms_norm_eps)

    def forward(self, batch: PackedBatch) -> Tensor:
        spec, products, c = self._spec, self._products, self._config
        plan = self._backend.plan(batch, spec)
        at = batch.positions.float()[None]
        x = F.embedding(batch.token_ids, self._word)
        squares = x.float().square().sum(-1, keepdim=True)
        kinds = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        for qkv_weight, columns, out_weight, gate_up_weight, down_weight in self._layers:
            rstd = finish(squares, c.hidden_size, c.rms_norm_eps).scale
            qkv = products.qkv(x, qkv_weight, rstd, at, columns)
            q, k, v = qkv.view(len(x), -1, HEAD_DIM).split(kinds, dim=1)
            attended = self._backend.run(q, k, v, plan).view(len(x), -1)
            squares = products.add_(attended, out_weight, x)
            rstd = finish(squares, c.hidden_size, c.rms_norm_eps).scale
            squares = products.add_(products.swiglu(x, gate_up_weight, rstd), down_weight, x)
        return self._final_norm(x)


class FusedEncoder:
    """`bert.Bert` with exact GELU; x is what the norm in front reads, not what it gives."""

    def __init__(
        self,
        config: BertConfig,
        weights: dict[str, Tensor],
        backend: AttentionBackend,
        products: Products,
    ) -> None:
        self._config, self._backend, self._products = config, backend, products
        self._spec = bert.attention_spec(config)
        self._embedding = bert.Bert(config, weights, backend)._embedding
        width = config.hidden_size
        ones = weights["word"].new_ones(width)
        norm = (ones, torch.zeros_like(ones))  # behind the embedding: done already
        self._layers = []
        for i in range(config.num_hidden_layers):
            w = {k.removeprefix(f"layers.{i}."): v for k, v in weights.items()}
            attention = (w["attention_norm.weight"], w["attention_norm.bias"])
            self._layers.append(
                (
                    _Normed(w, "qkv", norm),
                    _Added(w, "out", norm),
                    _Normed(w, "up", attention),
                    _Added(w, "down", attention),
                )
            )
            norm = (w["mlp_norm.weight"], w["mlp_norm.bias"])
        self._last = LayerNorm(*norm, eps=config.layer_norm_eps)

    def forward(self, batch: PackedBatch) -> Tensor:
        spec, products, c = self._spec, self._products, self._config
        plan = self._backend.plan(batch, spec)
        x = self._embedding(batch.token_ids, batch.positions)
        ones = x.new_ones(1, len(x), dtype=torch.float32)
        norm = Rows(ones, torch.zeros_like(ones))
        for qkv, out, up, down in self._layers:
            heads = products.ln_bias(x, qkv.weight, norm, qkv.wg, qkv.wb, gelu=False)
            q, k, v = heads.view(len(x), 3, spec.num_heads, spec.head_dim).unbind(1)
            attended = self._backend.run(q, k, v, plan).view(len(x), -1)
            sums, squares = products.ln_add_(attended, out.weight, out.bias, x, norm, out.scale)
            norm = finish(squares, c.hidden_size, c.layer_norm_eps, sums)
            wide = products.ln_bias(x, up.weight, norm, up.wg, up.wb, gelu=True)
            sums, squares = products.ln_add_(wide, down.weight, down.bias, x, norm, down.scale)
            norm = finish(squares, c.hidden_size, c.layer_norm_eps, sums)
        return self._last(x)


class _Normed:
    """A linear layer behind a norm."""

    def __init__(self, w: dict[str, Tensor], part: str, norm: tuple[Tensor, Tensor]) -> None:
        weight, bias = w[f"{part}.weight"].float(), w[f"{part}.bias"].float()
        self.weight = _times(w[f"{part}.weight"], norm[0])
        # Of the rounded weight: what is taken away is then what the product has put in.
        self.wg = self.weight.float().sum(1)[None]
        self.wb = (weight @ norm[1].float() + bias)[None]


class _Added:
    """A linear layer whose result is added to what a norm gives."""

    def __init__(self, w: dict[str, Tensor], part: str, norm: tuple[Tensor, Tensor]) -> None:
        self.weight = w[f"{part}.weight"]
        self.bias = (w[f"{part}.bias"].float() + norm[1].float())[None]
        self.scale = norm[0].float()[None]


def _times(weight: Tensor, norm: Tensor) -> Tensor:
    return (weight.float() * norm.float()).to(weight.dtype)
