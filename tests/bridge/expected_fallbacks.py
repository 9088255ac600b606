"""Ops that the programs of test_faults_*.py are known to run in ATen, a reason each.

The programs must be right all the same. An op that is listed and no longer falls back fails the test: strike it out.
"""

#: Program -> op -> why it has no lowering.
FALLBACKS: dict[str, dict[str, str]] = {
    "gradient_that_is_zero_everywhere": {
        "aten._efficientzerotensor.default": "makes a tensor without memory, and no kernel could give it any sooner",
    },
    "weight_norm": {
        "aten._weight_norm_interface_backward.default": "no converter: its forward decomposes, its backward does not",
    },
}
