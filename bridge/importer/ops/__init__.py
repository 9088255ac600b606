# SPDX-License-Identifier: Apache-2.0
"""Converters, one file an ATen family. Thin: they read arguments; the arithmetic is in `compute/`."""
