# SPDX-License-Identifier: Apache-2.0
"""The calling convention around a compiled graph: layouts, aliasing, mutation, symbolic sizes, ATen calls, errors."""
