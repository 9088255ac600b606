# SPDX-License-Identifier: Apache-2.0
"""Recorded operator calls (PyTorch's operator_inp_logs format) as a sweep: each rebuilt, translated and validated.

The text format: a line `Operator: aten.mm.default`, then for each distinct input a line `cnt: 3, ((T([8, 4], f16),
...), {...})`. It is read with `ast`: nothing in a file is ever executed.
"""

from __future__ import annotations

import ast
import functools
import gzip
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.pytree import tree_map

from .call import call_of
from .oplogs_values import TensorSpec, build, fit, in_float32
from .values import copy_inputs
from .worker import BaseSweep, Sample, spread

BUILT_IN = Path(__file__).parent / "data" / "operator_logs.txt.gz"

_DTYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "c32": torch.complex32, "c64": torch.complex64, "c128": torch.complex128,
    "b8": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
}  # fmt: skip

_NAMES = {**_DTYPES, "inf": float("inf"), "nan": float("nan")}


@dataclass(frozen=True)
class Recorded:
    """One recorded call, as text until `arguments` reads it."""

    op: str  # as it is called today
    text: str
    count: int  # how often the models made it
    line: int  # in its file
    recorded_op: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) with a TensorSpec for each tensor. Raises ValueError for text that is not in the format."""
        parsed = parse(self.text)
        if not (isinstance(parsed, tuple) and len(parsed) == 2 and isinstance(parsed[0], tuple)):
            raise ValueError("not a pair of arguments and keyword arguments")
        return _modern(self.recorded_op, *parsed)


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def parse(text: str) -> Any:
    """What a recorded text stands for: numbers, None, containers, dtypes and TensorSpecs. Executes nothing."""
    return _value(ast.parse(text, mode="eval").body)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=items):
            return tuple(map(_value, items))
        case ast.List(elts=items):
            return list(map(_value, items))
        case ast.Dict(keys=keys, values=values):
            return {_value(k): _value(v) for k, v in zip(keys, values, strict=True) if k is not None}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            found = getattr(torch, name, None)
            if isinstance(found, torch.dtype | torch.layout | torch.memory_format):
                return found
        case ast.Call(func=ast.Name(id="T"), args=args, keywords=keywords):
            shape, dtype = map(_value, args)
            stride = {k.arg: _value(k.value) for k in keywords}.get("stride")
            return TensorSpec(tuple(shape), dtype, None if stride is None else tuple(stride))
    raise ValueError(f"{ast.unparse(node)!r} is not part of the format")


def read_log(path: Path) -> list[Recorded]:
    """The calls of a log, in order. Raises UserError for a file that is not one; `.gz` is taken too."""
    try:
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path} as an operator log ({error})") from error
    return list(_records(path, text))


def _records(path: Path, text: str) -> Iterator[Recorded]:
    op = ""
    found = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("Operator: "):
            op = line.removeprefix("Operator: ").strip()
            continue
        entry = re.fullmatch(r"cnt: (\d+), (\(.*\))", line)
        if entry is None or not op:
            if line.strip() and not line.startswith("#"):
                raise UserError(
                    f"{path}:{number} is neither `Operator: ...` nor `cnt: N, ((...), {{...}})`; see README"
                )
            continue
        found = True
        yield Recorded(_RENAMED.get(op, op), entry[2], int(entry[1]), number, op)
    if not found:
        raise UserError(f"{path} has no recorded calls")


# ---------------------------------------------------------------------------------------------------------------------
# Ops whose name or arguments have changed since they were recorded

_RENAMED = {
    "aten.sum.SymInt": "aten.sum.dim_IntList",
    "aten.im2col_backward.default": "aten.col2im.default",
    "aten.col2im_backward.default": "aten.im2col.default",
    "aten.upsample_nearest2d_backward.vec": "aten.upsample_nearest2d_backward.default",
    "aten.upsample_bilinear2d_backward.vec": "aten.upsample_bilinear2d_backward.default",
}


_RESHAPE_IN_PLACE = frozenset({"aten.unsqueeze_.default", "aten.as_strided_.default"})


def _modern(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as today's op takes them, on this machine's CPU."""
    kwargs = {k: v for k, v in kwargs.items() if k not in ("pin_memory", "device")} | (
        {"device": "cpu"} if "device" in kwargs else {}
    )
    if op == "aten.upsample_nearest2d_backward.vec":  # (grad, output_size, input_size, scale_factors)
        return (args[0], list(args[0].shape[2:]), args[2], *_scales(args[3])), kwargs
    if op == "aten.upsample_bilinear2d_backward.vec":  # (grad, output_size, input_size, align_corners, scale_factors)
        return (args[0], list(args[0].shape[2:]), args[2], args[3], *_scales(args[4])), kwargs
    return args, kwargs


def _scales(factors: list[float] | None) -> tuple[float | None, float | None]:
    return (factors[0], factors[1]) if factors else (None, None)


def find_overload(name: str) -> Any:
    """The overload called `aten.op.overload`. Raises LookupError where this torch has none."""
    namespace, _, rest = name.partition(".")
    op, _, overload = rest.partition(".")
    found = getattr(getattr(getattr(torch.ops, namespace, None), op, None), overload or "default", None)
    if found is None:
        raise LookupError(f"this torch has no {name}")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The sweep


@functools.cache
def by_op(path: Path) -> dict[str, list[Recorded]]:
    """The calls of a log by op, in the order of the file."""
    ops: dict[str, list[Recorded]] = {}
    for record in read_log(path):
        ops.setdefault(record.op, []).append(record)
    return ops


class Sweep(BaseSweep):
    """Settings: file (path of a log), samples (at most so many an op; None: all)."""

    backward = False  # whether gradients are validated too: a log has the backward ops as calls of their own

    def __init__(self, settings: dict[str, Any]):
        super().__init__(settings)
        self.path = Path(settings.get("file") or BUILT_IN)
        self.limit: int | None = settings.get("samples")

    def entries(self) -> list[str]:
        return list(by_op(self.path))

    def samples(self, entry: str) -> dict[int, Callable[[], Sample]]:
        records = by_op(self.path)[entry]
        find_overload(entry)
        return {n: functools.partial(self._sample, records[n]) for n in spread(len(records), self.limit)}

    def _sample(self, record: Recorded) -> Sample:
        op = find_overload(record.op)
        facts: dict[str, Any] = {"count": record.count, "text": record.text, "line": record.line}
        if record.op != record.recorded_op:
            facts["recorded_op"] = record.recorded_op
        values, notes = _runnable(op, *record.arguments())
        facts |= notes
        if self.backward and not op._schema.is_mutable:
            values = _with_gradients(op, values)

        def call(*args: Any, **kwargs: Any) -> Any:
            return op(*args, **kwargs)

        def on_a_copy(first: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return op(first.clone(), *args, **kwargs)

        # Dynamo cannot give a graph input another shape in place, and no model asks it to.
        function = on_a_copy if record.op in _RESHAPE_IN_PLACE else call
        name = op._schema.name.removeprefix("aten::")
        return Sample(call_of(name, function, values[0], values[1], self.backward), facts)


def _runnable(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Inputs that eager takes on this machine, and what was changed for that.

    Eager on a CPU lacks half precision for some ops, and refuses mixtures of dtypes that it takes on a GPU: those
    calls are made in float32. Where eager takes none, the inputs are the recorded ones.
    """
    tried: list[tuple[Any, dict[str, Any]]] = []
    for wide in (False, True):
        call = (in_float32(args), in_float32(kwargs)) if wide else (args, kwargs)
        note: dict[str, Any] = {"made_in": "float32"} if wide else {}
        for really in (False, True):
            fitted = fit(op, call[0], call[1], really)
            values = build(op, fitted.args, fitted.kwargs)
            tried.append((values, note | ({"scaled": fitted.changes} if fitted.changes else {})))
            try:
                copied_args, copied_kwargs = copy_inputs(values, None)
                op(*copied_args, **copied_kwargs)
            except Exception:
                continue
            return tried[-1]
    return tried[0]


def _with_gradients(op: Any, values: Any) -> Any:
    """`values` with every tensor that can asking for a gradient, if the op takes that."""

    def ask(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
            return value.detach().requires_grad_()
        return value

    asking = tree_map(ask, values)
    try:
        args, kwargs = copy_inputs(asking, None)
        op(*args, **kwargs)
    except RuntimeError:  # some have no gradient for one of their inputs, as for running statistics
        return values
    return asking
