# SPDX-License-Identifier: Apache-2.0
"""Passes over scheduled kernels that only LLVM's code needs."""
