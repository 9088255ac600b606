# SPDX-License-Identifier: Apache-2.0
"""Random numbers drawn in place, into a new tensor of given strides: what the extern calls of random ops call.

Each function is called `function(size, stride, dtype, *args, **kwargs)` with the arguments of the Tensor method of its
name. They are found by name, so that a stored plan can name them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch


def _draw(method: str) -> Callable[..., torch.Tensor]:
    def draw(size: list[int], stride: list[int], dtype: torch.dtype, *args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = torch.empty_strided(size, stride, dtype=dtype)
        filled: torch.Tensor = getattr(tensor, method)(*args, **kwargs)
        return filled

    draw.__name__ = draw.__qualname__ = method
    return draw


bernoulli_ = _draw("bernoulli_")
uniform_ = _draw("uniform_")
normal_ = _draw("normal_")
exponential_ = _draw("exponential_")
geometric_ = _draw("geometric_")
log_normal_ = _draw("log_normal_")
cauchy_ = _draw("cauchy_")
random_ = _draw("random_")


class _Holding(threading.local):
    times = 0  # that this thread has the generator


_generator, _holding = threading.RLock(), _Holding()


def get_state() -> torch.Tensor:
    """The state of the default generator as int64 words, in memory of its own (the draws of generated kernels read it).

    Until `set_state` or `release` no other thread gets it here: two graphs would draw the same numbers.
    """
    _generator.acquire()
    _holding.times += 1
    return torch.get_rng_state().view(torch.int64)


def set_state(state: torch.Tensor) -> None:
    """Goes on from a state that `get_state` gave."""
    torch.set_rng_state(state.view(torch.uint8))
    if _holding.times:
        _holding.times -= 1
        _generator.release()


def release() -> None:
    """Leaves the generator as it is, to the next thread: after a graph that ended with an exception."""
    while _holding.times:
        _holding.times -= 1
        _generator.release()
