# SPDX-License-Identifier: Apache-2.0
"""The inputs of a graph: tensors, symbolic sizes, constants, and where the runtime reads the value of each symbol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
import torch.fx
import tvm
import tvm_ffi
from tvm import relax, tirx

from .. import torch_api
from ..kinds import ReasonKind
from ..plan import OpaqueParam, Param, ScalarParam, Strided, SymbolSource, TensorParam
from .compute.layout import permute
from .constants import attribute
from .types import DTYPES, Dim, dense_order, inverse, is_empty, is_typed
from .values import OpaqueValue, Storage, StridedView, SymbolicNumber, TensorValue, Value

if TYPE_CHECKING:
    from .state import TranslationState


class Inputs:
    """The parameters of the Relax function. After `read`, every placeholder and attribute has a value in `ctx.env`."""

    def __init__(self, ctx: TranslationState):
        self._ctx = ctx
        self.params: list[tuple[Param, relax.Var]] = []
        self.constants: list[torch.Tensor] = []
        self.count = 0  # of the placeholders
        self.split_inputs: list[int] = []  # see CallingPlan
        self._slice_count = 0  # of their slices
        self._fakes: list[Any] = []  # of the placeholders, then the constants themselves

    def read(self) -> None:
        """Gives every placeholder and attribute of the graph its value."""
        ctx = self._ctx
        placeholders = [n for n in ctx.graph.nodes if n.op == "placeholder"]
        self.count = len(placeholders)
        self._fakes = [n.meta.get("val") for n in placeholders]
        for index, node in enumerate(placeholders):
            ctx.env[node] = self._placeholder(index, node)
        for node in ctx.graph.nodes:
            if node.op == "get_attr":
                ctx.env[node] = self._attribute(node)
        for index, node in enumerate(placeholders):
            self._open(index, node)
        self._make_float_params()

    def _placeholder(self, index: int, node: torch.fx.Node) -> Value:
        fake = node.meta.get("val")
        if isinstance(fake, torch.Tensor):
            return self._tensor(index, node.name, fake)
        if torch_api.is_symint(fake):
            return SymbolicNumber(torch_api.expr_of(fake), type(fake))
        if isinstance(fake, int | float | bool) or fake is None:
            return fake
        return self._opaque(index, node.name)

    def _opaque(self, index: int, name: str) -> OpaqueValue:
        var = relax.Var(name, relax.AnyType())
        self.params.append((OpaqueParam(index), var))
        return OpaqueValue(var, index)

    def _tensor(self, index: int, name: str, fake: torch.Tensor) -> Value:
        if not is_typed(fake, self._ctx.device):
            return self._opaque(index, name)
        order = dense_order(fake)
        shape = self._ctx.whole_graph_dims(fake.shape)
        rows = tuple(range(fake.dim()))
        memory = order if order is not None else rows
        var = relax.Var(name, relax.TensorType([_as_expr(shape[d]) for d in memory], DTYPES[fake.dtype]))
        self.params.append((TensorParam(index, order, is_empty(shape)), var))
        storage = Storage(var, fake.storage_offset(), index, dense=order is not None)
        strided = StridedView(storage, tuple(fake.shape), tuple(fake.stride()), 0, whole=order == rows)
        logical = var if memory == rows else self._lazy_permute(var, inverse(memory))
        return TensorValue(logical, shape, DTYPES[fake.dtype], strided)

    def _lazy_permute(self, var: relax.Var, order: tuple[int, ...]) -> Callable[[], relax.Var]:
        return lambda: self._ctx.emit(permute, [var], order, name="permute")

    def _attribute(self, node: torch.fx.Node) -> Value:
        constant = attribute(self._ctx.module, node)
        if not isinstance(constant, torch.Tensor):
            return constant
        index = self.count + len(self.constants)
        self.constants.append(constant)
        self._fakes.append(constant)
        return self._tensor(index, node.name, constant)

    def _open(self, index: int, node: torch.fx.Node) -> None:
        """Has the slices of a pack (capture/coalesce.py) enter the function instead of it, each as a tensor of its own.

        Cut out of the pack by the kernels, each slice would make another kernel of what is done with it.
        """
        fake, users = node.meta.get("val"), list(node.users)
        if not self._ctx.is_backward or len(users) != 1 or users[0].target is not torch.ops.aten.unbind.int:
            return
        unbound = users[0]
        if unbound.args[1:] not in ((), (0,)) or any(user.op == "output" for u in unbound.users for user in u.users):
            return
        if not isinstance(fake, torch.Tensor) or not is_typed(fake, self._ctx.device) or torch_api.has_symbols(fake):
            return
        if not fake.is_contiguous():
            return
        first = self.count + len(self.constants) + self._slice_count
        parts = []
        for number in range(fake.shape[0]):
            shape = tuple(fake.shape[1:])
            var = relax.Var(f"{node.name}_{number}", relax.TensorType([_as_expr(n) for n in shape], DTYPES[fake.dtype]))
            self.params.append((TensorParam(first + number, tuple(range(len(shape))), is_empty(shape)), var))
            parts.append(TensorValue(var, shape, DTYPES[fake.dtype]))
        self.split_inputs.append(index)
        self._slice_count += len(parts)
        self._ctx.env[unbound] = tuple(parts)

    def _make_float_params(self) -> None:
        """A 0-d float64 parameter for each symbolic float that an op reads: TVM has no symbolic floats."""
        for node in self._ctx.graph.nodes:
            if node.op != "call_function" or not isinstance(node.target, torch_api.OpOverload):
                continue
            for arg in node.all_input_nodes:
                value = arg.meta.get("val")
                expr = torch_api.expr_of(value) if isinstance(value, torch.SymFloat) else None
                if expr is not None and getattr(expr, "free_symbols", None) and expr not in self._ctx.float_vars:
                    var = relax.Var(f"{arg.name}_value", relax.TensorType([], "float64"))
                    self._ctx.float_vars[expr] = var
                    self.params.append((ScalarParam(self._ctx.scalar(expr)), var))

    def layout(self, index: int) -> Strided | None:
        """Sizes and strides of an input (or constant); None where some are symbolic."""
        fake = self._fakes[index]
        if not isinstance(fake, torch.Tensor) or torch_api.has_symbols(fake):
            return None
        return Strided(tuple(fake.shape), tuple(fake.stride()))

    def without_unread(
        self, module: tvm.IRModule, symbols: Sequence[sympy.Symbol]
    ) -> tuple[tvm.IRModule, list[Param], list[sympy.Symbol]]:
        """The module without the parameters that nothing reads, and the tensors and the symbols that stay.

        The runtime then need not make an input that is only returned contiguous, and it may be None (the token of an
        effect). Nor need a symbol be an int: the ragged size of a jagged tensor is a number of torch's own, which
        dense graphs hand on and no kernel can read. Raises CannotTranslate where one would.
        """
        main = module["main"]
        read = set(relax.analysis.all_vars(main.body))
        count = len(main.params) - len(self.params)
        given = list(zip(self.params, main.params[count:], strict=True))
        kept = [(param, var) for (param, _), var in given if var in read]
        sizes: set[Any] = set()
        for part in (main.body, *(var.ty for _, var in kept)) if symbols else ():
            tvm_ffi.structural_walk(part, (tirx.Var, sizes.add))
        numbers = [(symbol, var) for symbol, var in zip(symbols, main.params[:count], strict=True) if var in sizes]
        for index, fake in enumerate(self._fakes):
            if torch_api.is_nested_int(fake) and torch_api.expr_of(fake).free_symbols & {s for s, _ in numbers}:
                node = [n for n in self._ctx.graph.nodes if n.op == "placeholder"][index]
                detail = "the ragged size of a jagged tensor, which no kernel can read"
                raise self._ctx.cannot(detail, node, ReasonKind.OPAQUE)
        if len(kept) < len(given) or len(numbers) < count:
            params = [var for _, var in (*numbers, *kept)]
            function = relax.Function(params, main.body, main.ret_ty, main.is_pure, main.attrs, main.span)
            module = tvm.IRModule(dict(module.functions), attrs=module.attrs)
            module["main"] = function
        return module, [param for param, _ in kept], [symbol for symbol, _ in numbers]

    def sources(self) -> dict[sympy.Symbol, SymbolSource]:
        """Where the runtime reads each symbol, plain occurrences first."""
        found: dict[sympy.Symbol, SymbolSource] = {}
        compound: list[tuple[Any, int, int | None, bool]] = []
        for index, fake in enumerate(self._fakes):
            for expr, dim, stride in _numbers(fake):
                if isinstance(expr, sympy.Symbol):
                    argument = not is_float_symbol(expr)
                    found.setdefault(expr, SymbolSource(str(expr), index, dim, stride, argument=argument))
                elif getattr(expr, "free_symbols", None):
                    compound.append((expr, index, dim, stride))
        for expr, index, dim, stride in compound:
            if len(expr.free_symbols) == 1 and (symbol := next(iter(expr.free_symbols))) not in found:
                linear = _linear(expr, symbol)
                if linear is not None:
                    argument = not is_float_symbol(symbol)
                    found[symbol] = SymbolSource(str(symbol), index, dim, stride, *linear, argument=argument)
        for symbol, source in found.items():
            if source.argument:
                self._ctx.symbols.var(symbol)
        return found


def _numbers(fake: Any) -> list[tuple[Any, int | None, bool]]:
    """The expressions that an input shows: (expression, dim or None for the input itself, whether it is a stride)."""
    if torch_api.is_symint(fake):
        return [(torch_api.expr_of(fake), None, False)]
    if not isinstance(fake, torch.Tensor) or fake.layout != torch.strided:
        return []
    sizes = [(torch_api.expr_of(s), d, False) for d, s in enumerate(fake.shape)]
    return sizes + [(torch_api.expr_of(s), d, True) for d, s in enumerate(fake.stride())]


def is_float_symbol(symbol: sympy.Symbol) -> bool:
    """Whether a symbol stands for a float."""
    return symbol.is_integer is not True


def _linear(expr: sympy.Expr, symbol: sympy.Symbol) -> tuple[int, int] | None:
    """(a, b) where `expr` is a*symbol + b; None where it is anything else."""
    try:
        polynomial = sympy.Poly(expr, symbol)
    except sympy.PolynomialError:
        return None
    if polynomial.degree() != 1:
        return None
    a, b = (int(c) for c in polynomial.all_coeffs())
    return a, b


def _as_expr(size: Dim) -> Any:
    return tvm.tirx.const(size, "int64") if isinstance(size, int) else size
