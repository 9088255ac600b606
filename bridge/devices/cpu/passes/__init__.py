"""Passes over scheduled kernels that only LLVM's code needs."""
