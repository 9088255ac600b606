# SPDX-License-Identifier: Apache-2.0
"""`pytest -p tests.bridge.devices.toy.plugin`: every graph of the tests is compiled for the toy device."""

from __future__ import annotations

from relaxgrad.bridge.device import devices
from tests.bridge.devices.toy import DEVICE

devices().clear()
devices()[DEVICE.name] = DEVICE
