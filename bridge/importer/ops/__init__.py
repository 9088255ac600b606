"""Converters, one file an ATen family. Thin: they read arguments; the arithmetic is in `compute/`."""
