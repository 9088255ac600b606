# SPDX-License-Identifier: Apache-2.0
"""The `relaxgrad` command: one module per command, each with a `command` function; heavy imports stay inside it."""
