# mypy: ignore-errors
"""The layers of steps of few tokens, by small_gemm.cu: each with its norm, and what follows, fused.

Legend: T tokens, D width of the residual stream, N outputs, K inputs, F mlp dim, H head dim.
"""

from __future__ import annotations

import ctypes

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.kernels.hopper.small_gemm import Kernel, SmallGemm, Stream


def qkv(
    layer: SmallGemm,
    stream: Stream,
    *,
    eps: float,
    q_weight: Tensor,
    k_weight: Tensor,
    head_eps: float,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    num_heads: int,
    num_kv_heads: int,
) -> Tensor:
    """RMSNorm, QKV projection, norm of q and k per head, rotary: [T, (heads + 2 kv heads) H].

    Args:
        layer: (num_heads + 2 num_kv_heads) H x D.
        stream: of T tokens.
        eps: of the norm.
        q_weight: BF16 [H], and so is `k_weight`.
        k_weight: see `q_weight`.
        head_eps: of the norm per head.
        cos: fp32 [positions, H / 2], and so is `sin`.
        sin: see `cos`.
        positions: int32 [T].
        num_heads: of q.
        num_kv_heads: of k, and of v.
    """
    out = _new(stream, len(layer.weight))
    layer(
        stream.scaled,
        out=out.data_ptr(),
        q_weight=q_weight.data_ptr(),
        k_weight=k_weight.data_ptr(),
        cos=cos.data_ptr(),
        sin=sin.data_ptr(),
        positions=positions.data_ptr(),
        head_eps=head_eps,
        row_stride=len(layer.weight),
        num_heads=num_heads,
        num_rotated=num_heads + num_kv_heads,
        **stream.arguments(eps),
    )
    return out


def swiglu(layer: SmallGemm, stream: Stream, *, eps: float) -> Tensor:
    """RMSNorm, gate and up projection, SwiGLU: [T, F].

    Args:
        layer: 2 F x D.
        stream: of T tokens.
        eps: of the norm.
    """
    half = len(layer.weight) // 2
    out = _new(stream, half)
    layer(
        stream.scaled,
        out=out.data_ptr(),
        row_stride=half,
        second_row=half,
        **stream.arguments(eps),
    )
    return out


def add_(layer: SmallGemm, x: Tensor, stream: Stream, *, next_weight: Tensor) -> None:
    """Add x W^T to the stream in place, and renew its companions.

    Args:
        layer: D x K, ``residual``.
        x: BF16 [T, K].
        stream: of T tokens.
        next_weight: BF16 [D], of the norm that comes next.
    """
    _renew(layer, x, stream, next_weight)


def project(
    layer: SmallGemm, stream: Stream, *, mean_part: Tensor, shift: Tensor, eps: float
) -> Tensor:
    """LayerNorm and a linear layer, with GELU where `layer` is of that kind: [T, N].

    Args:
        layer: N x D, ``project`` or ``gelu``.
        stream: of T tokens.
        mean_part: fp32 [N], see `deferred_layer_norm`.
        shift: fp32 [N], see `deferred_layer_norm`.
        eps: of the norm.
    """
    out = _new(stream, len(layer.weight))
    layer(
        stream.scaled,
        out=out.data_ptr(),
        mean_part=mean_part.data_ptr(),
        shift=shift.data_ptr(),
        row_stride=len(layer.weight),
        **stream.arguments(eps),
    )
    return out


def postnorm_(
    layer: SmallGemm,
    x: Tensor,
    stream: Stream,
    *,
    bias: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    next_weight: Tensor,
    eps: float,
) -> None:
    """stream = LayerNorm(stream) + x W^T + bias in place, with its companions.

    Args:
        layer: D x K, ``postnorm``.
        x: BF16 [T, K].
        stream: of T tokens.
        bias: BF16 [D].
        norm_weight: BF16 [D].
        norm_bias: BF16 [D].
        next_weight: BF16 [D], of the norm of the result.
        eps: of the norm.
    """
    _renew(
        layer,
        x,
        stream,
        next_weight,
        bias=bias.data_ptr(),
        norm_weight=norm_weight.data_ptr(),
        norm_bias=norm_bias.data_ptr(),
        **stream.arguments(eps),
    )


def deferred_layer_norm(
    weight: Tensor, bias: Tensor, norm_weight: Tensor, norm_bias: Tensor
) -> tuple[Tensor, Tensor]:
    """(W w, W b_norm + b) in fp32, each [N]: what a linear layer behind a LayerNorm comes to.

    W LayerNorm(x) + b = r (W (w x) - m W w) + W b_norm + b, with mean m and r = 1 / deviation of x.
    """
    wide = weight.float()
    return wide @ norm_weight.float(), wide @ norm_bias.float() + bias.float()


def embed(
    table: Tensor,
    token_ids: Tensor,
    stream: Stream,
    *,
    next_weight: Tensor,
    second: tuple[Tensor, Tensor] | None = None,
) -> None:
    """The stream's start.

    Args:
        table: BF16 [vocabulary, D].
        token_ids: int32 [T]; not checked here.
        stream: written to.
        next_weight: BF16 [D], of the first norm.
        second: another table and its int32 [T], to add.
    """
    num_tokens, width = stream.rows.shape
    function = Kernel(16, 64, 1, 1, "residual").compiled(table.device, 0, "small_embed")
    inputs = (table, token_ids, *(second or (None, None)), next_weight)
    tensors = (*inputs, stream.rows, stream.scaled, stream.sums)
    function.launch(
        [
            *(ctypes.c_uint64(0 if tensor is None else tensor.data_ptr()) for tensor in tensors),
            ctypes.c_int32(width),
            ctypes.c_int32(num_tokens),
        ],
        grid=(width // 64, -(-num_tokens // 4)),
        threads=128,
    )


def _new(stream: Stream, width: int) -> Tensor:
    device = stream.rows.device
    return torch.empty(len(stream.rows), width, dtype=torch.bfloat16, device=device)


def _renew(
    layer: SmallGemm, x: Tensor, stream: Stream, next_weight: Tensor, **arguments: float
) -> None:
    layer(
        x,
        out=stream.rows.data_ptr(),
        scaled=stream.scaled.data_ptr(),
        sums_out=stream.spare.data_ptr(),
        next_weight=next_weight.data_ptr(),
        row_stride=stream.rows.shape[1],
        **arguments,
    )
    stream.sums, stream.spare = stream.spare, stream.sums


def rms_reference(stream: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """RMSNorm of the stream, fp32."""
    x = stream.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()


def layer_reference(stream: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """LayerNorm of the stream, fp32."""
    return F.layer_norm(stream.float(), weight.shape, weight.float(), bias.float(), eps)


def swiglu_reference(stream: Tensor, norm: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """[T, F] in fp32."""
    gate, up = F.linear(rms_reference(stream, norm, eps=eps), weight.float()).chunk(2, dim=-1)
    return F.silu(gate) * up
