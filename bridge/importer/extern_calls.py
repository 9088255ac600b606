# SPDX-License-Identifier: Apache-2.0
"""Calls from the compiled graph into ATen: library kernels, random numbers, and fallbacks."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from tvm import relax

from .. import pytree, rng, torch_api
from ..kinds import Kind, ReasonKind
from ..plan import EXTERN_FUNCTION, ExternCall, ExternResult, Strided, TensorArg
from .compute.layout import permute
from .types import DTYPES, dense_order, inverse, is_typed
from .values import OpaqueValue, Storage, StridedView, SymbolicNumber, TensorValue, Value

if TYPE_CHECKING:
    from .state import TranslationState


#: Ops that read their first argument's memory by numbers of its elements: a contiguous copy would give other values.
_READ_MEMORY = frozenset(
    {torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_copy.default,
     torch.ops.aten.as_strided_scatter.default}
)  # fmt: skip


class ExternCalls:
    """Builds the table of extern calls of one translation."""

    def __init__(self, state: TranslationState):
        self._ctx = state
        self.table: list[ExternCall] = []
        self.last_effectful: relax.Var | None = None
        self._drawn: TensorValue | None = None

    def generator_state(self, words: int) -> TensorValue:
        """The state of the default generator at this place of the graph, so many int64 words (see bridge/rng.py)."""
        if self._drawn is not None:
            return self._drawn
        fake = torch.empty(words, dtype=torch.int64)
        state: TensorValue = self.call(rng.get_state, (), {}, fake, Kind.LIBRARY, non_aliasing=True, effectful=True)
        return state

    def drew_until(self, state: TensorValue) -> None:
        """Goes on from `state`. It is put back before the next call that may draw, and at the end of the graph."""
        self._drawn = state

    def put_back(self) -> None:
        """Puts back what the generator's state became in the graph."""
        if (state := self._drawn) is not None:
            self._drawn = None
            self.call(rng.set_state, (state,), {}, None, Kind.LIBRARY, non_aliasing=True, effectful=True)

    def call_node(self, node: torch.fx.Node, kind: Kind, *, non_aliasing: bool = False) -> Value:
        """The node's own op with the node's own arguments."""
        env = self._ctx.env
        if node.target in _READ_MEMORY and not _lies_as_eagers(env[node.args[0]]):  # type: ignore[index]  # a node
            detail = f"{node.target} of a tensor whose memory is not laid out as eager's"
            raise self._ctx.cannot(detail, node, ReasonKind.ARGUMENTS)
        args = torch.fx.node.map_arg(node.args, lambda n: env[n])
        kwargs = torch.fx.node.map_arg(node.kwargs, lambda n: env[n])
        effectful = may_draw(node.target) or node.is_impure()
        target: Any = node.target
        return self.call(
            target, args, kwargs, node.meta.get("val"), kind, non_aliasing=non_aliasing, effectful=effectful
        )

    def call(
        self,
        target: Callable[..., Any],
        args: Any,
        kwargs: dict[str, Any],
        fake: Any,
        kind: Kind,
        *,
        non_aliasing: bool,
        effectful: bool = False,
    ) -> Value:
        """A call of `target` with values for arguments; `fake` (FakeTensors, any pytree) says what it returns.

        `non_aliasing`: the results never share memory with the arguments. `effectful`: see Note [Effectful calls].
        """
        ctx = self._ctx
        if effectful:
            self.put_back()
        packed: list[relax.Expr] = []
        positions: dict[Any, int] = {}

        def position(var: relax.Expr) -> int:
            if var not in positions:
                positions[var] = len(packed)
                packed.append(var)
            return positions[var]

        def argument(value: Any) -> Any:
            if isinstance(value, TensorValue):
                return self._tensor_argument(value, position)
            if isinstance(value, OpaqueValue):
                return TensorArg(position(value.var), opaque=True)
            if isinstance(value, SymbolicNumber):
                return ctx.number(value.expr)
            return ctx.number(value) if torch_api.is_symint(value) else value

        leaves, spec = pytree.tree_flatten((args, kwargs), is_leaf=_is_value)
        call_args, call_kwargs = pytree.tree_unflatten([argument(leaf) for leaf in leaves], spec)
        single = not isinstance(fake, list | tuple | dict)
        outputs, out_spec = pytree.tree_flatten(fake)
        consumed = consumed_outputs(ctx.node) if isinstance(fake, list | tuple) else {0}
        if len(outputs) != len(fake if isinstance(fake, list | tuple) else [fake]):
            consumed = set(range(len(outputs)))
        results = [self._result(out) if i in consumed else None for i, out in enumerate(outputs)]
        self.table.append(
            ExternCall(ctx.node.name, target, call_args, call_kwargs, tuple(results), single, kind, non_aliasing)
        )
        if effectful and self.last_effectful is not None:
            packed.append(self.last_effectful)
        types = [self._type(out, result) for out, result in zip(outputs, results, strict=True)]
        call = relax.call_pure_packed(
            EXTERN_FUNCTION,
            relax.prim_value(len(self.table) - 1),
            *packed,
            ty_args=types[0] if single else relax.TupleType(types),
        )
        var = ctx.builder.emit(call, name_hint=ctx.node.name)
        if effectful:
            self.last_effectful = var
        if single:
            return self._value(fake, results[0], var)
        values = [
            self._value(out, result, ctx.builder.emit(relax.TupleGetItem(var, i)) if result is not None else None)
            for i, (out, result) in enumerate(zip(outputs, results, strict=True))
        ]
        value: Value = pytree.tree_unflatten(values, out_spec)
        return value

    def _tensor_argument(self, value: TensorValue, position: Callable[[relax.Expr], int]) -> TensorArg:
        strided = value.strided
        if strided is None or not strided.storage.dense:
            return TensorArg(position(value.var))
        if strided.whole:
            return TensorArg(position(strided.storage.var))
        number = self._ctx.number
        view = Strided(
            tuple(number(s) for s in strided.size), tuple(number(s) for s in strided.stride), number(strided.offset)
        )
        return TensorArg(position(strided.storage.var), view)

    def _result(self, fake: Any) -> ExternResult | None:
        if torch_api.is_symint(fake) or isinstance(fake, int | float | bool) or fake is None:
            return None
        if not isinstance(fake, torch.Tensor) or not is_typed(fake, self._ctx.device):
            return ExternResult(opaque=True)
        return ExternResult(dense_order(fake), dtype=fake.dtype, size=tuple(map(self._ctx.number, fake.shape)))

    def _type(self, fake: Any, result: ExternResult | None) -> Any:
        if result is None or result.opaque:
            return relax.AnyType()
        shape = self._ctx.dims(fake.shape)
        memory = result.order if result.order is not None else range(len(shape))
        return relax.TensorType(
            [relax.prim_value(shape[d]) if isinstance(shape[d], int) else shape[d] for d in memory], DTYPES[fake.dtype]
        )

    def _value(self, fake: Any, result: ExternResult | None, var: relax.Var | None) -> Value:
        ctx = self._ctx
        if torch_api.is_symint(fake):
            return SymbolicNumber(torch_api.expr_of(fake), type(fake))
        if result is None or var is None:
            return fake if isinstance(fake, int | float | bool) else None
        if result.opaque:
            return OpaqueValue(var)
        shape = ctx.dims(fake.shape)
        row_major = tuple(range(len(shape)))
        order = result.order
        if order is None or any(isinstance(d, int) and d == 0 for d in shape):
            return TensorValue(var, shape, DTYPES[fake.dtype])
        strided = StridedView(
            Storage(var, fake.storage_offset()), tuple(fake.shape), tuple(fake.stride()), 0, order == row_major
        )
        if order == row_major:
            return TensorValue(var, shape, DTYPES[fake.dtype], strided)
        name = ctx.node.name
        back = inverse(order)
        return TensorValue(
            lambda: ctx.emit(permute, [var], back, name=f"{name}_rows"), shape, DTYPES[fake.dtype], strided
        )


def _lies_as_eagers(value: Value) -> bool:
    return not isinstance(value, TensorValue) or (value.strided is not None and value.strided.storage.dense)


def may_draw(target: Any) -> bool:
    """Whether a call may advance the generator: a function that is not PyTorch's own may."""
    if not isinstance(target, torch_api.OpOverload) or target.namespace not in ("aten", "prims"):
        return True
    return draws_random(target)


def draws_random(target: Any) -> bool:
    """Whether an op advances the random number generator."""
    return isinstance(target, torch_api.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def _is_value(value: Any) -> bool:
    return isinstance(value, TensorValue | OpaqueValue | SymbolicNumber)


def consumed_outputs(node: torch.fx.Node) -> set[int]:
    """The outputs of a node that some other node reads; all of them where a reader takes the whole tuple."""
    value = node.meta.get("val")
    if not isinstance(value, list | tuple):
        return {0}
    consumed: set[int] = set()
    for user in node.users:
        if user.target is operator.getitem:
            if user.users:
                consumed.add(user.args[1])  # type: ignore[arg-type]  # an int
        else:
            return set(range(len(value)))
    return consumed
