# SPDX-License-Identifier: Apache-2.0
"""What became of a graph: listings of each stage, and counts of operations."""
