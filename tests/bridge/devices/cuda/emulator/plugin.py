# SPDX-License-Identifier: Apache-2.0
"""`pytest -p tests.bridge.devices.cuda.emulator.plugin`: every graph of the tests is compiled for the emulated GPU."""

from __future__ import annotations

from relaxgrad.bridge.device import devices
from tests.bridge.devices.cuda.emulator import DEVICE

devices().clear()
devices()[DEVICE.name] = DEVICE
