# SPDX-License-Identifier: Apache-2.0
"""How an op runs, and the typed reasons of a refusal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How an op of a training graph runs."""

    NATIVE = "native"  # TVM generates the kernel
    LIBRARY = "library"  # a tuned vendor or ATen kernel chosen on purpose: GEMM, convolution, attention, random numbers
    FALLBACK = "fallback"  # ATen, for want of a lowering
    METADATA = "metadata"  # no kernel: views, symbolic sizes
    UNSUPPORTED = "unsupported"  # refused


class ReasonKind(StrEnum):
    """Why a node was refused by the native and library converters."""

    NO_CONVERTER = "no converter"
    ARGUMENTS = "arguments not covered"  # the op is known, this combination of arguments is not
    DTYPE = "dtype not covered"
    SYMBOLIC = "symbolic shape not covered"
    OUTPUT = "output not produced"  # a consumed output that the converter does not compute
    OPAQUE = "value TVM cannot type"  # complex, sparse, quantized
    TYPE_CHECK = "type check failed"  # the Relax type differs from the FakeTensor: a fault of the converter
    DATA_DEPENDENT = "data-dependent shape"
    COMPILE = "TVM failed to compile"


@dataclass(frozen=True)
class Kernel:
    """One kernel of a compiled graph."""

    kind: Kind  # native or library
    operations: int | None = None  # of a native one's call, as compile/flop_count.py counts them; None: not known
    overwrites: tuple[int, ...] = ()  # numbers of the arguments whose memory takes a result


@dataclass(frozen=True)
class SourceLine:
    """A line in the user's model."""

    file: str
    line: int
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" ({self.code})" if self.code else "")


@dataclass(frozen=True)
class Reason:
    """Why one node does not run natively or through a library: data, never a log line."""

    kind: ReasonKind
    op: str  # as `aten.sort.default`
    node: str  # name of the FX node
    detail: str = ""
    dtypes: tuple[str, ...] = ()  # of the node's tensor inputs
    shapes: tuple[tuple[str, ...], ...] = ()  # of the node's tensor inputs, symbolic sizes as text
    source: SourceLine | None = None

    def __str__(self) -> str:
        where = f" at {self.source}" if self.source else ""
        detail = f": {self.detail}" if self.detail else ""
        shapes = ", ".join(f"{d}[{', '.join(s)}]" for d, s in zip(self.dtypes, self.shapes, strict=False))
        return f"{self.op}({shapes}): {self.kind}{detail}{where}"

    def to_json(self) -> dict[str, object]:
        return asdict(self)
