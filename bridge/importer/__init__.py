# SPDX-License-Identifier: Apache-2.0
"""CapturedGraph -> Translation: FX nodes become Relax bindings, one converter an op, or a call into ATen."""
