# SPDX-License-Identifier: Apache-2.0
"""A study of the validation: what its grades catch of planted faults, and what they say of legitimate runs."""
