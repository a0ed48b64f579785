"""Switches Triton's interpreter on, before a layer imports the kernels."""

from tests.rose.kernels.devices import device, dtype, randoms

__all__ = ["device", "dtype", "randoms"]
