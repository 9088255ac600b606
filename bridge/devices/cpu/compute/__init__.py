# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions and kernels that only the CPU has."""
