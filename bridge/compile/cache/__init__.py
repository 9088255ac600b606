# SPDX-License-Identifier: Apache-2.0
"""Compiled graphs kept on disk: what an entry is keyed by, how it is written, linked and found."""
