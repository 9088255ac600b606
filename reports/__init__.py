# SPDX-License-Identifier: Apache-2.0
"""What the measurements mean, for people: tables and pages made from stored results, never typed."""
