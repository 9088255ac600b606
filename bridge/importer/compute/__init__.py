# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions with ATen's semantics: small functions from te.Tensors to te.Tensors, tested alone.

They know nothing of FX: converters in `ops/` read an op's arguments and call them.
"""
