# SPDX-License-Identifier: Apache-2.0
"""Implementations of ops that only the CPU has: the importer loads every file here for its graphs."""
