# SPDX-License-Identifier: Apache-2.0
"""The devices that graphs are compiled for: each a folder, which `device.devices()` finds by its name."""
