"""Linear layers on packed tokens, with what follows them fused where the device can.

    y = act(x W^T + b)    or    y = x W^T + b + residual

On the CPU in fp32 the weight is packed once into oneDNN's blocked layout, and activation and
residual run in the GEMM's epilogue. Measured 2026-11-30 (AMD EPYC, AVX-512, 2 threads, MiniLM
shapes): 1.1 to 1.4 times the rate of `torch.nn.functional.linear`, GELU 3 to 6 % instead of a pass
of its own.

On a GPU the GEMM is cuBLAS's, which takes bias, tanh-GELU and ReLU into its epilogue. The residual
is the matrix it accumulates on: in place, as the out-of-place form copies it first. Exact GELU is a
kernel of its own, together with the bias. For steps of many rows GELU runs in the epilogue of a
GEMM from the folder of kernels, where there is one (`hotbed.rose.kernels.gemm`). In FP8 the product
is that of `fp8_linear`; where a row's bits may not depend on the others that of `fixed_linear`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.kernels.gemm_files import Epilogue
from hotbed.rose.layers.fixed_linear import FixedProduct
from hotbed.rose.layers.fp8_linear import Activations, Fp8Product
from hotbed.rose.layers.fused import current_mode, gemm_for, kernels_for

Activation = Literal["none", "gelu", "gelu_tanh", "relu", "silu"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}
# oneDNN's names: (attribute, algorithm) of torch.ops.mkldnn._linear_pointwise.
_EPILOGUES: dict[str, tuple[str, str]] = {
    "none": ("none", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "silu": ("swish", ""),
}
# Epilogues of fused GEMMs for activations behind a bias.
_FUSED: dict[Activation, Epilogue] = {"gelu": "gelu_bias", "gelu_tanh": "gelu_tanh_bias"}
# Rows for which oneDNN lays the weight out; the layout served 16 to 2,048 rows equally well.
_PACK_ROWS = 16


class Linear:
    """One linear layer.

    Args:
        weight: [out, in].
        bias: [out] or None.
        activation: applied to the output; not together with a residual.

    Attributes:
        weight: [out, in], or oneDNN's form of it, or the values of the FP8 form.
        has_bias: whether there is a bias.
        kernels: the launchers if the layer is on a GPU, else None; see `hotbed.rose.layers.fused`.
        fp8: the product in FP8, if the model is built so.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, *, activation: Activation = "none"
    ) -> None:
        self.out_features, self.in_features = weight.shape
        self._bias = bias
        self.has_bias = bias is not None
        self._activation = activation
        self.kernels = kernels_for(weight)
        self._packed = self.kernels is None and can_pack(weight)
        self.weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACK_ROWS)
            if self._packed
            else weight
        )
        if self.kernels is not None and activation == "gelu":
            self.kernels.check_multiple("GELU", self.out_features)
        self.fp8: Fp8Product | None = None
        self._product: Fp8Product | FixedProduct | None = None
        if self.kernels is not None:
            mode, plain_bias = current_mode(), self.has_bias and activation != "gelu"
            if mode.fp8:
                self.fp8 = Fp8Product(weight, has_bias=plain_bias, kernels=self.kernels)
                self._product, self.weight = self.fp8, self.fp8.weight.values
            elif mode.invariant:
                self._product = FixedProduct(weight, has_bias=plain_bias, kernels=self.kernels)
        # Held by the layer, so that nothing is loaded under capture.
        self._fused = None
        if bias is not None and activation in _FUSED:
            self._fused = gemm_for(weight, _FUSED[activation])

    def __call__(self, x_TI: Activations, residual: Tensor | None = None) -> Tensor:
        """x [T, in] to [T, out], plus `residual` [T, out] if given.

        On a GPU the sum is written over `residual`: whoever gives it has no more use for it.
        """
        if self._product is not None:
            return self._by(self._product, x_TI, residual)
        assert isinstance(x_TI, Tensor), "norms make FP8 for layers in FP8 alone: a bug"
        if self._packed:
            ops = torch.ops.mkldnn._linear_pointwise
            out: Tensor
            if residual is not None:
                out = ops.binary(x_TI, residual, self.weight, self._bias, "add")
            else:
                attribute, algorithm = _EPILOGUES[self._activation]
                out = ops.default(x_TI, self.weight, self._bias, attribute, [], algorithm)
            return out
        if self.kernels is not None:
            return self._on_gpu(self.kernels, x_TI, residual)
        y = F.linear(x_TI, self.weight, self._bias)
        if residual is not None:
            return y.add_(residual)
        return y if self._activation == "none" else _ACTIVATIONS[self._activation](y)

    def _by(
        self,
        product: Fp8Product | FixedProduct,
        x_TI: Activations,
        residual: Tensor | None,
    ) -> Tensor:
        if residual is not None:
            y = product.add_(x_TI, residual)
            return y if self._bias is None else y.add_(self._bias)
        if self._fused is not None:
            return self._fused(product.rows(x_TI), product.weight, self._bias)
        if self._activation == "gelu":
            assert self.kernels is not None, "these products are for GPUs alone"
            activated: Tensor = self.kernels.bias_gelu_(product(x_TI, None), self._bias)
            return activated
        y = product(x_TI, self._bias)
        return y if self._activation == "none" else _ACTIVATIONS[self._activation](y)

    def _on_gpu(self, kernels: ModuleType, x_TI: Tensor, residual: Tensor | None) -> Tensor:
        if residual is not None:
            y = residual.addmm_(x_TI, self.weight.T)
            return y if self._bias is None else y.add_(self._bias)
        if self._fused is not None and self._fused.takes(x_TI):
            return self._fused(x_TI, self.weight, self._bias)
        if self._activation == "gelu":
            activated: Tensor = kernels.bias_gelu_(x_TI @ self.weight.T, self._bias)
            return activated
        if self._bias is not None and self._activation in ("gelu_tanh", "relu"):
            tanh = self._activation == "gelu_tanh"
            return torch._addmm_activation(self._bias, x_TI, self.weight.T, use_gelu=tanh)
        y = F.linear(x_TI, self.weight, self._bias)
        return y if self._activation == "none" else _ACTIVATIONS[self._activation](y)


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN's packed linear takes this weight: fp32 on the CPU of a build that has it."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
    )
