"""Ops that the programs of test_faults_*.py are known to run in ATen, a reason each.

The programs must be right all the same. An op that is listed and no longer falls back fails the test: strike it out.
"""

#: Program -> op -> why it has no lowering.
FALLBACKS: dict[str, dict[str, str]] = {}
