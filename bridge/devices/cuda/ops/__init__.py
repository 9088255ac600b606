# SPDX-License-Identifier: Apache-2.0
"""Ways to run ops that NVIDIA GPUs alone have."""
