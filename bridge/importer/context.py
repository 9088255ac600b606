# SPDX-License-Identifier: Apache-2.0
"""What converters see: the state of the translation, and calls into ATen."""

from __future__ import annotations

from ..schemas import CapturedGraph
from .extern_calls import ExternCalls
from .state import Options, TranslationState


class ConversionContext(TranslationState):
    """The first argument of every converter, `ctx`."""

    def __init__(self, captured: CapturedGraph, options: Options):
        super().__init__(captured, options)
        self.extern = ExternCalls(self)
