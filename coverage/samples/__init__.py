# SPDX-License-Identifier: Apache-2.0
"""Graph samples: a graph with its inputs and what comes out, as files that stand alone and can be checked.

A folder with sample.json (schema.py), tensors.bin (the bytes of the inputs) and graph.txt (for people; never read).
Loading one runs nothing: ops are looked up by name among ATen's, and there is no pickle. What a sample says of itself
is not believed: sizes are bounded, bytes and hash compared. The hash tells damage and careless edits; it does not say
who made the sample.
"""

from .load import Loaded, load
from .replay import BACKENDS, replay
from .save import save
from .schema import Sample

__all__ = ["BACKENDS", "Loaded", "Sample", "load", "replay", "save"]
