# SPDX-License-Identifier: Apache-2.0
"""Kernel schedules without search: rules, what they ask of a kernel, and TVM's primitives. Devices have the rules."""

from .kernel import is_element_wise
from .rule import Rule, apply_rules, schedule_kernels

__all__ = ["Rule", "apply_rules", "is_element_wise", "schedule_kernels"]
