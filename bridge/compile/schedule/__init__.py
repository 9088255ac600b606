"""Kernel schedules: one rule a kind of block, chosen by rule, without search."""

from .cpu import is_element_wise
from .kernels import schedule_kernels

__all__ = ["is_element_wise", "schedule_kernels"]
