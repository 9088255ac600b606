# SPDX-License-Identifier: Apache-2.0
"""The feasibility report: what an audit and a benchmark say about models, for a person who must decide."""
