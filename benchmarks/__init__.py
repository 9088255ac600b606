# SPDX-License-Identifier: Apache-2.0
"""How fast: training step time, compile time and memory beside eager and TorchInductor.

The timing primitive is `relaxgrad.coverage.harness.timing`: coverage times steps too, and may not import from here.
"""
