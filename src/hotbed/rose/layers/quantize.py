"""From pooled rows to the rows a client asked for, all in fp32: cut, normalise, quantise.

int8, pplx:  clamp(round_half_even(tanh(p) * 127), -128, 127)   (pplx-embed's st_quantize.py)
int8, other: round_half_even(x / max|x| * 127) for each row; cosine does not see the scale
bits:        x >= 0, on the unquantised value, eight a byte, most significant first, as numpy does
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.rose.layers.rows_fp32 import NORM_EPS, unit_rows

Quantizer = Literal["none", "pplx"]


def finish(
    rows_SD: Tensor,
    spec: OutputSpec,
    *,
    normalize: bool,
    quantizer: Quantizer,
    fixed: bool = False,
) -> Tensor:
    """Pooled fp32 rows [S, D] to contiguous rows [S, row width] of the spec's dtype, same device.

    Args:
        rows_SD: pooled rows; not written to, but float32 rows may be a view of them.
        spec: what the client asked for; its dimensions were checked against D.
        normalize: the model's default, used where the spec does not say.
        quantizer: the model's own int8 recipe.
        fixed: as for `rows_fp32`.
    """
    x = rows_SD[:, : spec.dimensions] if spec.dimensions else rows_SD
    if normalize if spec.normalize is None else spec.normalize:
        x = unit_rows(x, fixed=fixed)
    if spec.dtype is OutputDtype.FLOAT32:
        return x.contiguous()
    if spec.dtype is OutputDtype.FLOAT16:
        return x.half().contiguous()
    if spec.dtype is OutputDtype.INT8:
        return _int8(x, quantizer).contiguous()
    packed = _pack_bits(x >= 0)
    return packed if spec.dtype is OutputDtype.UBINARY else (packed.int() - 128).to(torch.int8)


def _pack_bits(bits_SD: Tensor) -> Tensor:
    """Bool [S, D] to uint8 [S, D / 8], most significant bit first."""
    weights = 1 << torch.arange(7, -1, -1, dtype=torch.int32, device=bits_SD.device)
    grouped = bits_SD.view(len(bits_SD), -1, 8).int()
    return (grouped * weights).sum(dim=-1, dtype=torch.int32).to(torch.uint8)


def _int8(x: Tensor, quantizer: Quantizer) -> Tensor:
    if quantizer == "pplx":
        scaled = torch.tanh(x) * 127
    else:
        largest = x.abs().amax(dim=-1, keepdim=True).clamp_min(NORM_EPS)
        scaled = x / largest * 127
    # Clip before the cast: a cast wraps around.
    return scaled.round().clamp(-128, 127).to(torch.int8)
