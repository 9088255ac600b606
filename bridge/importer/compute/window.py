# SPDX-License-Identifier: Apache-2.0
"""Windows of a static size that slide along a spatial dim: convolution, pooling."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import sym, tirx

from .layout import const

Expr = Any


@dataclass(frozen=True)
class Axis:
    """One spatial dim. Window o reads the elements `o * stride - padding + k * dilation`, k < kernel.

    Sizes that are symbolic leave `whole` and `holders`, and nothing else here.
    """

    size: Expr  # of the input: an int or an expression
    count: Expr  # of the output, likewise
    kernel: int
    stride: int
    padding: int  # of the input, at its start
    dilation: int

    @cached_property
    def stays_inside(self) -> bool:
        """Whether every window surely lies in the input from end to end."""
        first, end = self.whole
        if self.is_static:
            return (first, end) == (0, self.count)
        return end is self.count

    @cached_property
    def reach(self) -> int:
        """Padded elements that some output reads."""
        return (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    @cached_property
    def places(self) -> int:
        """Places of one phase: the padded elements of equal remainder by the stride."""
        return (self.reach + self.stride - 1) // self.stride

    def tap(self, k: Expr) -> tuple[Expr, Expr]:
        """(phase, place) that output 0 reads for tap k."""
        return divided(k * const(self.dilation), self.stride)

    @cached_property
    def copied(self) -> tuple[int, int]:
        """The elements of the input, first and past the last, that lie in reach."""
        return max(0, -self.padding), min(self.size, self.reach - self.padding)

    @property
    def is_static(self) -> bool:
        return isinstance(self.size, int) and isinstance(self.count, int)

    @cached_property
    def whole(self) -> tuple[Expr, Expr]:
        """The windows, first and past the last, that lie in the input from end to end."""
        if not self.is_static:
            last = self.size - const(1 + (self.kernel - 1) * self.dilation - self.padding)
            end = tirx.floordiv(last, const(self.stride)) + const(1)
            if self.padding == 0 and sym.Analyzer().can_prove_equal(end, const(self.count)):
                return 0, self.count
            first = tirx.min(const(-(-self.padding // self.stride)), const(self.count))
            return first, tirx.max(first, tirx.min(end, const(self.count)))
        first = min(-(-self.padding // self.stride), self.count)
        last = (self.size - 1 - (self.kernel - 1) * self.dilation + self.padding) // self.stride + 1
        return first, max(first, min(last, self.count))

    @cached_property
    def holders(self) -> int:
        """Windows that hold one element, at most."""
        return (self.kernel - 1) * self.dilation // self.stride + 1

    def transposed(self) -> Axis:
        """The axis of the gradient of the input, for a stride of one: the turned filter slides over the output."""
        assert self.stride == 1
        reach = (self.kernel - 1) * self.dilation
        return Axis(self.count, self.size, self.kernel, 1, reach - self.padding, self.dilation)


def divided(position: Expr, stride: int) -> tuple[Expr, Expr]:
    """(remainder, quotient) of a position that is not negative."""
    if stride == 1:
        return const(0), position
    return tirx.floormod(position, const(stride)), tirx.floordiv(position, const(stride))
