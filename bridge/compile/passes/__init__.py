# SPDX-License-Identifier: Apache-2.0
"""Passes of our own between the importer's Relax module and machine code; `pipeline.py` has the order."""
