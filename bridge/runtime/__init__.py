"""The calling convention around a compiled graph: layouts, aliasing, mutation, symbolic sizes, calls into ATen, errors."""
