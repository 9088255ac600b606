# SPDX-License-Identifier: Apache-2.0
"""Translation -> library: lookup, passes, kernel schedules, and what is kept for the next process."""
