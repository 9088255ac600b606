# SPDX-License-Identifier: Apache-2.0
"""What Inductor finds out about a machine, shared by the processes of a run.

With its caches off it compiles half a dozen small programs anew in each process, to see which vector instructions
work: ten seconds of every process, apart from the first step that is timed. Here it finds them in a folder of the run:
it loads with that folder as its cache, and for the model its caches are off as ever. The programs' names are hashes of
what they are made of, compiler and flags included.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER, OFF = "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_FORCE_DISABLE_CACHES"
#: Options of a probe's graphs: a cached one would leave out of `load` what a compilation imports, and the first step
#: would pay for it.
_NO_GRAPHS = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}


def environment(off: dict[str, str], shared: Path) -> dict[str, str]:
    """The environment of a worker that loads Inductor from `shared`, made of one whose caches are off."""
    return off | _NO_GRAPHS | {FOLDER: str(shared), OFF: "0"}


def loaded(own: Path) -> None:
    """After Inductor has loaded: its caches are off from here on, its files go to the folder `own`."""
    import torch

    os.environ[FOLDER] = str(own)
    torch.compiler.config.force_disable_caches = True
