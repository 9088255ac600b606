# SPDX-License-Identifier: Apache-2.0
"""With this folder and the repository's root in PYTHONPATH, every process compiles for the emulated GPU: commands that
start workers of their own (`relaxgrad audit`)."""

from __future__ import annotations

import functools

from relaxgrad.bridge import device


@functools.cache
def _devices() -> dict[str, device.Device]:
    from tests.bridge.devices.cuda.emulator import DEVICE

    return {DEVICE.name: DEVICE}


device.devices = _devices
