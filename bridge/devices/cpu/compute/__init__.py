"""Tensor expressions and kernels that only the CPU has."""
