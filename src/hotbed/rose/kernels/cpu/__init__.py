"""The CPU's own kernels: C, compiled on the machine that runs them, called through ctypes."""
