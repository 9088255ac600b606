# SPDX-License-Identifier: Apache-2.0
"""A compiled graph: code and the plan to call it, apart from the tensors and source lines of any one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..device import Device
from ..kinds import Kernel
from ..plan import CallingPlan, NodeReport


@dataclass(eq=False)
class Compiled:
    """What graphs that are equal share. Filled by backend.py, or by the cache."""

    device: Device
    library: Any  # TVM runtime module, from which a virtual machine is made
    plan: CallingPlan
    nodes: list[NodeReport]
    kernels: dict[str, Kernel]  # by name
    symbols: tuple[str, ...] = ()  # names of the sizes in the reports, in order of appearance. Filled by the cache
