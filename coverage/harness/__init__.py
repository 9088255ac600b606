# SPDX-License-Identifier: Apache-2.0
"""Training problems, the processes they run in, and the rule that validates their numbers: under every measurement."""
