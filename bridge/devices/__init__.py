"""The devices that graphs are compiled for: each a folder here, found by its name. See base.py for what one decides."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING

import torch

from .. import pytree
from .base import Device, Rewrite

if TYPE_CHECKING:
    import torch.fx

__all__ = ["Device", "Rewrite", "device_of", "devices", "host"]


@functools.cache
def devices() -> dict[str, Device]:
    """torch's name of a device -> the device. Loads every folder of this one at the first call."""
    folders = (module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)
    found = (importlib.import_module(f"{__name__}.{name}").DEVICE for name in folders)
    return {device.name: device for device in found}


def host() -> Device:
    """The device whose memory this process reads."""
    return next(device for device in devices().values() if device.is_host)


def device_of(module: torch.fx.GraphModule) -> Device:
    """The device that a graph is compiled for: that of its tensors, the host's for one without.

    Where an accelerator's tensors stand beside the host's it is the accelerator's: eager takes numbers of no dims from
    the host, and other values of another device go to ATen.
    """
    known, found = devices(), host()
    if not any(device.compiles for device in known.values() if device is not found):
        return found
    for node in module.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            device = known.get(value.device.type) if isinstance(value, torch.Tensor) else None
            if device is not None and device.compiles and not device.is_host:
                return device
    return found
