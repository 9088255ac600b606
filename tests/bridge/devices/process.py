# SPDX-License-Identifier: Apache-2.0
"""A process in which another device may take the place of the processor's: there is one set of devices a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run_python(*command: str) -> subprocess.CompletedProcess[str]:
    """Runs the interpreter with these arguments in the repository's root, on one thread, with no cache."""
    settings = {"OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1", "RELAXGRAD_CACHE": "0"}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, **settings, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
