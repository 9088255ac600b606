# SPDX-License-Identifier: Apache-2.0
"""What the fuzzer may write in a line: expressions over earlier values, with the ops of the bridge's registry.

Note [Exact values]
A step function (floor, comparison, arg max, the slope of relu) turns a rounding error into another answer, and eager
is no more right than the compiled graph then. So values carry whether they are exact: small multiples of 1/8, made
only by operations that round nothing. Step functions get exact values only, ties and zeros among them, which is where
their semantics differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Choose = Callable[[list[Any]], Any]  # one of a list; shrinks towards its first element


@dataclass(frozen=True)
class Value:
    """A name in the graph being written, with the value that eager gives it."""

    name: str
    tensor: Tensor
    exact: bool  # see Note [Exact values]


@dataclass(frozen=True)
class Template:
    """One kind of line. `write` gets the operands and `choose`, and returns the expression, or None where none fits."""

    name: str
    write: Callable[[list[Value], Choose], str | None]
    arity: int = 1
    takes: Callable[[Value], bool] = lambda value: True
    needs_exact: bool = False
    keeps_exact: bool = False


def _float(value: Value) -> bool:
    return value.tensor.is_floating_point()


def _number(value: Value) -> bool:
    return value.tensor.dtype is not torch.bool


def _has_elements(value: Value) -> bool:
    return value.tensor.numel() > 0


def _small_float(value: Value) -> bool:
    return _float(value) and (not value.tensor.numel() or bool(value.tensor.abs().max() < 8))


def _dim(value: Value, choose: Choose) -> int | None:
    """Some dim, sometimes counted from the end."""
    rank = value.tensor.dim()
    return choose([*range(rank), *range(-rank, 0)]) if rank else None


def _with_dim(text: str) -> Callable[[list[Value], Choose], str | None]:
    """A line of one operand `{x}` and a dim `{d}`."""

    def write(values: list[Value], choose: Choose) -> str | None:
        dim = _dim(values[0], choose)
        return None if dim is None else text.format(x=values[0].name, d=dim, keep=choose([False, True]))

    return write


def _plain(text: str) -> Callable[[list[Value], Choose], str | None]:
    """A line of the operands `{0}`, `{1}`, ..."""
    return lambda values, choose: text.format(*(v.name for v in values))


# ---------------------------------------------------------------------------------------------------------------------
# Pointwise ops: found in the registry by their schema

_GUARDS = {  # what keeps an op in its domain, and away from its poles
    "sqrt": "{}.abs() + 0.5", "rsqrt": "{}.abs() + 0.5", "log": "{}.abs() + 0.5", "log2": "{}.abs() + 0.5",
    "log10": "{}.abs() + 0.5", "log1p": "{}.abs()", "reciprocal": "{}.abs() + 0.5", "lgamma": "{}.abs() + 1.5",
    "digamma": "{}.abs() + 1.5", "acos": "{}.tanh() * 0.9", "asin": "{}.tanh() * 0.9", "atanh": "{}.tanh() * 0.9",
    "acosh": "{}.abs() + 1.5", "tan": "{}.tanh()", "erfinv": "{}.tanh() * 0.9", "logit": "{}.sigmoid() * 0.8 + 0.1",
    "exp": "{}.clamp(-8, 8)", "exp2": "{}.clamp(-8, 8)", "expm1": "{}.clamp(-8, 8)", "sinh": "{}.clamp(-8, 8)",
    "cosh": "{}.clamp(-8, 8)", "mvlgamma": "{}.abs() + 3",
}  # fmt: skip


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Step functions, and ops whose slope jumps: Note [Exact values].
_STEPS = _words(
    """abs ceil floor round trunc sign sgn relu hardtanh leaky_relu elu hardsigmoid hardswish relu6 frac isinf isnan
    signbit logical_not eq ne lt le gt ge maximum minimum fmax fmin logical_and logical_or logical_xor copysign
    clamp_max clamp_min remainder fmod floor_divide threshold selu celu bitwise_not isfinite isposinf isneginf"""
)
_KEEP = _words("abs ceil floor round trunc sign sgn relu neg add sub maximum minimum fmax fmin square positive clone")
_SECOND_NOT_ZERO = _words("div true_divide remainder fmod floor_divide")
#: Not functions of their arguments alone, or not pointwise.
_LEFT_OUT = _words(
    """empty_like rand_like randn_like bernoulli new_empty lift_fresh lift_fresh_copy nextafter contiguous nonzero
    detach alias item any all sum mean prod max min median nanmedian argmax argmin t zero ones_like zeros_like dist std
    var mv dot mm bmm ger vdot outer inverse pinverse det logdet sinc isreal matmul rot90 cholesky_inverse igamma
    igammac trace tril_indices complex polar atleast_1d atleast_2d atleast_3d data_ptr bitwise_left_shift
    bitwise_right_shift squeeze count_nonzero mse_loss ldexp gcd lcm frexp angle real imag conj geqrf squeeze_copy
    unsafe_view alias_copy detach_copy t_copy view_as expand_as reshape_as conj_physical heaviside cross kron pow
    float_power xlogy logit fill bucketize searchsorted"""
)


def _pointwise(overload: Any) -> Template | None:
    """The template of an overload `(Tensor) -> Tensor` or `(Tensor, Tensor) -> Tensor`, if it is a pointwise one."""
    schema = overload._schema
    base = schema.name.removeprefix("aten::")
    inputs = [a for a in schema.arguments if not a.kwarg_only]
    tensors = [a for a in inputs if str(a.type) == "Tensor"]
    rest = [a for a in inputs if str(a.type) != "Tensor"]
    if not schema.name.startswith("aten::") or base in _LEFT_OUT or base.startswith(("_", "linalg", "special", "fft")):
        return None
    if torch.Tag.nondeterministic_seeded in overload.tags:
        return None
    single = len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor"
    if schema.is_mutable or not single or rest or len(tensors) not in (1, 2):
        return None
    if any(not a.has_default_value() for a in schema.arguments if a.kwarg_only):
        return None
    call = f"torch.ops.{overload}"
    integers = base.startswith("bitwise")
    takes = _integral if integers else _float if base not in _STEPS | _KEEP | {"mul"} else _number
    step = base in _STEPS
    if len(tensors) == 1:
        text = f"{call}({_GUARDS.get(base, '{}')})"
        return Template(str(overload), _plain(text), 1, takes, step, base in _KEEP or step)
    second = "({1}.abs() + 1)" if base in _SECOND_NOT_ZERO else "{1}"
    return Template(str(overload), _plain(f"{call}({{0}}, {second})"), 2, takes, step, base in _KEEP or step)


def _integral(value: Value) -> bool:
    return not value.tensor.is_floating_point()


# ---------------------------------------------------------------------------------------------------------------------
# Everything else


def _reshape(values: list[Value], choose: Choose) -> str:
    shape = list(values[0].tensor.shape)
    forms = [[-1] if values[0].tensor.numel() else [0], shape[::-1], [1, *shape], [*shape, 1]]
    if len(shape) > 1 and shape[0] * shape[1]:
        forms.append([shape[0] * shape[1], *shape[2:]])
    return f"{values[0].name}.reshape({choose(forms)})"


def _slice(values: list[Value], choose: Choose) -> str | None:
    dim = _dim(values[0], choose)
    if dim is None:
        return None
    start, step = choose([0, 1, -2]), choose([1, 2])
    return (
        f"torch.ops.aten.slice.Tensor({values[0].name}, {dim}, {start}, {choose([9223372036854775807, 3, -1])}, {step})"
    )


def _permute(values: list[Value], choose: Choose) -> str | None:
    rank = values[0].tensor.dim()
    if rank < 2:
        return None
    left, order = list(range(rank)), []
    while left:
        order.append(choose(left))
        left.remove(order[-1])
    return f"{values[0].name}.permute({order})"


def _expand(values: list[Value], choose: Choose) -> str:
    sizes = [choose([-1, 3]) if size == 1 else -1 for size in values[0].tensor.shape]
    return f"{values[0].name}.expand({[2, *sizes] if choose([False, True]) else sizes})"


def _select(values: list[Value], choose: Choose) -> str | None:
    dim = _dim(values[0], choose)
    if dim is None or not values[0].tensor.shape[dim]:
        return None
    return f"torch.ops.aten.select.int({values[0].name}, {dim}, {choose([0, -1])})"


def _cat(values: list[Value], choose: Choose) -> str | None:
    dim = _dim(values[0], choose)
    if dim is None:
        return None
    return (
        f"torch.cat([{values[0].name}, {values[0].name}.flip({dim}), {values[0].name}[:1]], {dim if dim == 0 else 0})"
    )


def _index(values: list[Value], choose: Choose) -> str | None:
    """Take along the first dim, repeated and out of order; the second operand only says how many."""
    size = values[0].tensor.shape[0] if values[0].tensor.dim() else 0
    if not size:
        return None
    picks = [choose(list(range(size))) for _ in range(choose([1, 2, 4]))]
    indices = f"torch.tensor({picks})"
    form = choose(["index_select", "advanced", "negative"])
    if form == "index_select":
        return f"{values[0].name}.index_select(0, {indices})"
    return f"{values[0].name}[{indices if form == 'advanced' else f'{indices} - {size}'}]"


def _gather(values: list[Value], choose: Choose) -> str | None:
    dim = _dim(values[0], choose)
    if dim is None or not values[0].tensor.numel():
        return None
    x, size = values[0].name, values[0].tensor.shape[dim]
    index = f"({x}.abs() * 8).long() % {size}"
    return choose(
        [
            f"torch.ops.aten.gather.default({x}, {dim}, {index})",
            f"torch.ops.aten.scatter_add.default({x}, {dim}, {index}, {x} * 2)",
            f"torch.ops.aten.scatter_reduce.two({x}, {dim}, {index}, {x}, 'amax')",
        ]
    )


def _index_put(values: list[Value], choose: Choose) -> str | None:
    size = values[0].tensor.shape[0] if values[0].tensor.dim() else 0
    if not size or values[0].tensor.dim() > 3:
        return None
    picks = f"torch.tensor({[choose(list(range(size))) for _ in range(2)]})"
    x = values[0].name
    return f"torch.ops.aten.index_put.default({x}, [{picks}], {x}[:1] * 2, True)"


def _matmul(values: list[Value], choose: Choose) -> str | None:
    if values[0].tensor.dim() < 2 or values[0].tensor.dim() > 3:
        return None
    x = values[0].name
    return choose(
        [
            f"{x} @ {x}.transpose(-1, -2)",
            f"{x}.transpose(-1, -2) @ {x}",
            f"torch.einsum('...ij,...kj->...ik', {x}, {x})",
        ]
    )


def _pad(values: list[Value], choose: Choose) -> str | None:
    if not values[0].tensor.dim():
        return None
    return f"torch.nn.functional.pad({values[0].name}, {choose([[1, 2], [0, 1], [-1, 1]])}, value={choose([0.0, 1.5])})"


def _layer_norm(values: list[Value], choose: Choose) -> str | None:
    shape = values[0].tensor.shape
    return f"torch.nn.functional.layer_norm({values[0].name}, [{shape[-1]}])" if shape and shape[-1] > 1 else None


def _cast(values: list[Value], choose: Choose) -> str:
    to = choose(["float32", "float64", "int64", "bool", "int32"])
    return f"{values[0].name}.to(torch.{to})"


def _in_place(values: list[Value], choose: Choose) -> str | None:
    """A copy that is written to."""
    rank = values[0].tensor.dim()
    if not rank:
        return None
    last = "t_()" if rank == 2 else "add_(1)"
    return f"{values[0].name}.clone().{choose(['mul_(2)', 'index_fill_(0, torch.tensor([0]), 3)', last])}"


def _filled_float(value: Value) -> bool:
    return _float(value) and _has_elements(value)


def _filled_number(value: Value) -> bool:
    return _number(value) and _has_elements(value)


_TEMPLATES = (
    Template("reshape", _reshape, keeps_exact=True),
    Template("slice", _slice, keeps_exact=True),
    Template("permute", _permute, keeps_exact=True),
    Template("expand", _expand, keeps_exact=True),
    Template("select", _select, keeps_exact=True),
    Template("unsqueeze", _with_dim("{x}.unsqueeze({d})"), keeps_exact=True),
    Template("squeeze", _with_dim("{x}.squeeze({d})"), keeps_exact=True),
    Template("flip", _with_dim("{x}.flip({d})"), keeps_exact=True),
    Template("roll", _with_dim("{x}.roll(1, {d})"), keeps_exact=True),
    Template("diagonal", lambda v, c: f"{v[0].name}.diagonal()" if v[0].tensor.dim() > 1 else None, keeps_exact=True),
    Template("unbind", _with_dim("torch.stack({x}.unbind({d}))"), takes=_has_elements, keeps_exact=True),
    Template("split", _with_dim("torch.cat({x}.split(2, {d})[::-1], {d})"), keeps_exact=True),
    Template("tril", lambda v, c: f"{v[0].name}.tril(-1)" if v[0].tensor.dim() > 1 else None, keeps_exact=True),
    Template("repeat", lambda v, c: f"{v[0].name}.repeat({[2, *[1] * v[0].tensor.dim()]})", keeps_exact=True),
    Template("pad", _pad, 1, _float, keeps_exact=True),
    Template("cat", _cat, keeps_exact=True),
    Template("index", _index, keeps_exact=True),
    Template("gather", _gather, 1, _float, needs_exact=True),
    Template("index_put", _index_put, 1, _float, keeps_exact=True),
    Template("in_place", _in_place, 1, _number, keeps_exact=True),
    Template("cast", _cast, 1, needs_exact=True, keeps_exact=True),
    Template("where", _plain("torch.where({0} > 0, {0}, {1})"), 2, _number, needs_exact=True, keeps_exact=True),
    Template("masked_fill", _plain("{0}.masked_fill({0} < 0.5, 2)"), 1, _number, needs_exact=True, keeps_exact=True),
    Template("clamp", _plain("{0}.clamp(-1, 2)"), 1, _number, needs_exact=True, keeps_exact=True),
    Template("sum", _with_dim("{x}.sum({d}, {keep})"), keeps_exact=True),
    Template("sum_all", _plain("{0}.sum()"), keeps_exact=True),
    Template("mean", _with_dim("{x}.mean({d}, {keep})"), 1, _filled_float),
    Template("amax", _with_dim("{x}.amax({d}, {keep})"), 1, _has_elements, needs_exact=True, keeps_exact=True),
    Template("amin", _with_dim("{x}.amin({d}, {keep})"), 1, _has_elements, needs_exact=True, keeps_exact=True),
    Template("max", _with_dim("{x}.max({d}, {keep})[0]"), 1, _has_elements, needs_exact=True, keeps_exact=True),
    Template("argmax", _with_dim("{x}.argmax({d}, {keep})"), 1, _filled_number, needs_exact=True),
    Template("any", _with_dim("{x}.any({d}, {keep})"), needs_exact=True),
    Template("all", _plain("{0}.all()"), needs_exact=True),
    Template("sort", _with_dim("{x}.sort({d}, stable=True)[0]"), needs_exact=True, keeps_exact=True),
    Template("argsort", _with_dim("{x}.sort({d}, stable=True)[1]"), needs_exact=True),
    Template("cumsum", _with_dim("{x}.cumsum({d})"), keeps_exact=True),
    Template("prod", _with_dim("{x}.prod({d})"), 1, lambda v: _small_float(v) and v.tensor.numel() < 40),
    Template("var", _with_dim("{x}.var({d}, correction=0, keepdim={keep})"), 1, _filled_float),
    Template("softmax", _with_dim("{x}.softmax({d})"), 1, _float),
    Template("log_softmax", _with_dim("{x}.log_softmax({d})"), 1, _float),
    Template("logsumexp", _with_dim("{x}.logsumexp({d})"), 1, _filled_float),
    Template("layer_norm", _layer_norm, 1, _filled_float),
    Template("matmul", _matmul, 1, _small_float),
    Template("gelu", _plain("torch.nn.functional.gelu({0})"), 1, _float),
    Template("silu", _plain("torch.nn.functional.silu({0})"), 1, _float),
    Template("scale", _plain("{0} * 2 + 1"), 1, _number, keeps_exact=True),
    Template("pow", _plain("{0} ** 2"), 1, _number, keeps_exact=True),
    Template("pow3", _plain("torch.pow({0}.abs() + 0.5, 1.5)"), 1, _float, needs_exact=True),
)  # fmt: skip


def templates() -> list[Template]:
    """Every kind of line: the pointwise ops of the bridge's registry, and the table above."""
    from relaxgrad.bridge.importer.registry import registry

    found = [_pointwise(overload) for overload in sorted(registry(), key=str)]
    return [*_TEMPLATES, *(template for template in found if template is not None)]
