# SPDX-License-Identifier: Apache-2.0
"""Keys of computations: what two calls of one key compute is one kernel.

A model repeats its layers. Whether two tensor expressions are the same is known before they are built, from the
functions that would build them: their code, what they closed over, and the tensors and numbers they are given.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from tvm import ir, relax, tirx

#: Functions inside functions that are looked into.
DEEPEST = 8


class _Unknown(Exception):
    """A value that cannot be part of a key: a function may do anything with it."""


def key_of(function: Callable[..., Any], tensors: Sequence[relax.Var], args: Sequence[Any]) -> Hashable | None:
    """The key of `function(*te_tensors, *args)` in one graph; None where it has none.

    Two calls have one key only if they compute the same. A function that closes over anything but plain values, sizes
    and functions of that kind (a translator, a tensor, a list that it could write to) has none.
    """
    try:
        return _of(function), tuple(map(_of_tensor, tensors)), tuple(map(_of_argument, args))
    except (_Unknown, RecursionError):  # a size may be a sum of a thousand terms
        return None


def _of_tensor(var: relax.Var) -> Hashable:
    return str(var.ty.dtype), tuple([_of(size) for size in var.ty.shape.values])


def _of_argument(value: Any) -> Hashable:
    """The key of a number, a function, or a list of them that is not kept after the call."""
    if isinstance(value, list):
        return list, tuple(map(_of_argument, value))
    return _of(value)


def _of(value: Any, depth: int = 0) -> Hashable:
    """`depth`: functions inside functions; one that closes over itself has no end."""
    if depth > DEEPEST:
        raise _Unknown
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if isinstance(value, type):
        return type, value
    if kind is float:
        return kind, value.hex()  # 0.0 and -0.0 are two
    if kind is tuple or kind is torch.Size:
        return kind, tuple([_of(v, depth) for v in value])
    if kind is types.FunctionType:
        defaults = _of(value.__defaults__, depth + 1), _of(tuple((value.__kwdefaults__ or {}).items()), depth + 1)
        try:
            closure = tuple([_of(cell.cell_contents, depth + 1) for cell in value.__closure__ or ()])
        except ValueError:  # a cell that is still empty
            raise _Unknown from None
        # Equal code in two modules reads two sets of globals.
        return value.__code__, value.__globals__.get("__name__"), defaults, closure
    if kind is functools.partial:
        return kind, _of(value.func, depth), _of(value.args, depth), _of(tuple(sorted(value.keywords.items())), depth)
    if kind is types.BuiltinFunctionType and isinstance(value.__self__, types.ModuleType):  # bound to nothing else
        return kind, value
    if kind is tirx.IntImm or kind is tirx.FloatImm:
        return kind, str(value.ty.dtype), _of(value.value)
    if kind in _ARITHMETIC:
        return kind, _of(value.a, depth), _of(value.b, depth)
    if kind is tirx.Var and isinstance(value.ty, ir.PrimType):
        return kind, str(value.ty.dtype), value.name  # a size of the graph, which has a name of its own
    if dataclasses.is_dataclass(value) and kind.__dataclass_params__.frozen:
        return kind, tuple([_of(getattr(value, f.name), depth) for f in dataclasses.fields(value)])
    raise _Unknown


#: What sizes are made of.
_ARITHMETIC = frozenset({tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Max, tirx.Min})
#: What is its own key.
_PLAIN = frozenset({type(None), bool, int, str, torch.dtype})
