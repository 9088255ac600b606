# SPDX-License-Identifier: Apache-2.0
"""One model's way through the stack: from the module's source to machine code, each stage linked to the one before."""
