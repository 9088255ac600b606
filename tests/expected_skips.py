# SPDX-License-Identifier: Apache-2.0
"""The table of what a test may be skipped for: what the machine lacks, and never what the project does.

A run that has prepared the machine (`.ci/run`) names the kinds that must be there in RELAXGRAD_TESTS_NEED, parted by
commas; lacking one of those fails.
"""

from __future__ import annotations

import importlib.util
import os
from enum import StrEnum
from typing import NoReturn

import pytest

NEED = "RELAXGRAD_TESTS_NEED"


class Lacking(StrEnum):
    """What a machine may lack."""

    BROWSER = "browser"
    CPU_TARGET = "cpu-target"
    CPUINFO = "cpuinfo"
    NVCC = "nvcc"
    PACKAGE = "package"
    TORCH_RELEASE = "torch-release"


#: Kind -> why a test cannot do without it.
EXPECTED_SKIPS: dict[Lacking, str] = {
    Lacking.BROWSER: "what a page does when it is opened, sorted, clicked and printed is seen in a browser alone",
    Lacking.CPU_TARGET: "code for vector instructions that this CPU lacks compiles here and cannot run",
    Lacking.CPUINFO: "what the system shows of an x86 CPU is read from /proc/cpuinfo",
    Lacking.NVCC: "NVIDIA's compiler alone makes machine code of CUDA source",
    Lacking.PACKAGE: "an optional package, another importer's or some models' of the zoo, is installed for those alone",
    Lacking.TORCH_RELEASE: "a page holds the graphs of the torch that it was made with; others have other graphs",
}


def skip(lacking: Lacking, detail: str) -> NoReturn:
    """Skips the test, with its row of the table; fails it where the run says that the machine has it."""
    if lacking in os.environ.get(NEED, "").split(","):
        pytest.fail(f"{NEED} names {lacking}: {detail}")
    pytest.skip(f"{lacking}: {EXPECTED_SKIPS[lacking]} ({detail})")


def need_package(name: str) -> None:
    """Skips the test where the package is not installed."""
    if importlib.util.find_spec(name) is None:
        skip(Lacking.PACKAGE, name)
