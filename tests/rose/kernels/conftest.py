"""Switches Triton's interpreter on, before the kernels import Triton."""

from tests.rose.kernels.devices import border, device, dtype, randoms

__all__ = ["border", "device", "dtype", "randoms"]
