"""CUDA C++ kernels for compute capability 9.0, compiled when a model is loaded."""
