# SPDX-License-Identifier: Apache-2.0
"""Attention: ATen's fused kernels, which work on one block of the scores at a time."""

from __future__ import annotations

import torch

from ....importer.registry import register_library

aten = torch.ops.aten

register_library(
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
)
