"""Kernel schedules: one rule a kind of block, chosen by rule, without search."""

from .kernels import schedule_kernels

__all__ = ["schedule_kernels"]
