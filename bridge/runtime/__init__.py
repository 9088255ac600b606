"""The calling convention around a compiled graph: layouts, aliasing, mutation, symbolic sizes, ATen calls, errors."""
