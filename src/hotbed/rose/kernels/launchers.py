"""All launchers under one name, for the layers: what they import when a model is built on a GPU."""

from hotbed.rose.kernels.embed_norm import embed_norm
from hotbed.rose.kernels.fixed_gemm import fixed_gemm, unit_rows
from hotbed.rose.kernels.fp8_rows import fp8_rows
from hotbed.rose.kernels.gelu import bias_gelu_
from hotbed.rose.kernels.launch import check_multiple, check_width
from hotbed.rose.kernels.layer_norm import layer_norm, layer_norm_fp8
from hotbed.rose.kernels.pool import pool
from hotbed.rose.kernels.qk_norm_rope import check_head_dim, qk_norm_rope_
from hotbed.rose.kernels.rms_norm import add_rms_norm, rms_norm, rms_norm_fp8
from hotbed.rose.kernels.short_attention import short_attention
from hotbed.rose.kernels.swiglu import swiglu

__all__ = [
    "add_rms_norm",
    "bias_gelu_",
    "check_head_dim",
    "check_multiple",
    "check_width",
    "embed_norm",
    "fixed_gemm",
    "fp8_rows",
    "layer_norm",
    "layer_norm_fp8",
    "pool",
    "qk_norm_rope_",
    "rms_norm",
    "rms_norm_fp8",
    "short_attention",
    "swiglu",
    "unit_rows",
]
