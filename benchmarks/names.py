# SPDX-License-Identifier: Apache-2.0
"""The names of the candidates. Imports no torch."""

from __future__ import annotations

from relaxgrad.bridge.errors import UserError

RELAXGRAD, EAGER, INDUCTOR = "relaxgrad", "eager", "inductor"
BATCH, DYNAMIC = "relaxgrad-batch", "relaxgrad-dynamic"  # the first size of each input symbolic; every size
SYMBOLIC = (BATCH, DYNAMIC)
OWN = (RELAXGRAD, *SYMBOLIC)
OWN_RANDOM = (INDUCTOR,)  # draw with a generator of their own, unless they are told otherwise
BUILT_IN = (INDUCTOR, EAGER, "aot_eager")


def parse_against(text: str) -> tuple[str, ...]:
    """The baselines of `--against`, each once, in order. Raises UserError for one that can be told wrong now."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UserError(f"--against names no baseline; known: {', '.join(BUILT_IN)}")
    for name in names:
        _check(name)
    return names


def _check(name: str) -> None:
    if name in OWN:
        raise UserError(
            f"--against {name}: it takes part in any case" + ("" if name == RELAXGRAD else "; use --dynamic")
        )
    if name in BUILT_IN or name.replace("_", "").isalnum():
        return
    module, colon, function = name.partition(":")
    if not colon or not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise UserError(
            f"--against {name}: not a baseline; known: {', '.join(BUILT_IN)}, any backend of torch.compile, or "
            "package.module:backend"
        )
