# SPDX-License-Identifier: Apache-2.0
"""What the functions of this folder are written with: values of n lanes, which become LLVM IR as they are computed.

Not TIR expressions: a value that is used twice would have to be bound by a `Let`, and TVM's analyser puts the value
back in place of the variable, so that functions of functions grow without bound. A call of an LLVM function is a call.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

#: Adding it to a float rounds that to an integer, which then stands in the low bits: 1.5 * 2^23 and 1.5 * 2^52.
ROUND = {"float": 12582912.0, "double": 6755399441055744.0}
#: Bits of 1.0 as float32
ONE_BITS = 0x3F800000

_SUFFIX = {"float": "f32", "double": "f64", "i1": "i1", "i32": "i32", "i64": "i64"}
_CASTS = {
    ("float", "double"): "fpext",
    ("double", "float"): "fptrunc",
    ("i32", "float"): "sitofp",
    ("float", "i32"): "fptosi",
    ("i64", "i32"): "trunc",
}
_AS_BITS = {"float": "i32", "double": "i64"}
_AS_FLOAT = {"i32": "float", "i64": "double"}


class Value:
    """An SSA value; arithmetic on it writes an instruction. Python numbers take the kind of the other operand."""

    def __init__(self, builder: Lanes, kind: str, name: str):
        self.builder = builder
        self.kind = kind  # LLVM's type of one lane
        self.name = name

    @property
    def is_float(self) -> bool:
        return self.kind in _AS_BITS

    def _operate(self, name: str, other: Value | float, swapped: bool = False) -> Value:
        b = self.builder
        left, right = self, b.like(self, other)
        return b.instruction(name, self.kind, *((right, left) if swapped else (left, right)))

    def _arithmetic(self, name: str, other: Value | float, swapped: bool = False) -> Value:
        return self._operate(f"f{name}" if self.is_float else name, other, swapped)

    def _compare(self, name: str, other: Value | float) -> Value:
        b, ordered = self.builder, name if name == "eq" else f"s{name}"
        operation = f"fcmp o{name}" if self.is_float else f"icmp {ordered}"
        return b.instruction(operation, "i1", self, b.like(self, other))

    def __add__(self, other: Value | float) -> Value:
        return self._arithmetic("add", other)

    def __radd__(self, other: float) -> Value:
        return self._arithmetic("add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: float) -> Value:
        return self._arithmetic("sub", other, swapped=True)

    def __mul__(self, other: Value | float) -> Value:
        return self._arithmetic("mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._arithmetic("div", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._arithmetic("div", other, swapped=True)

    def __lshift__(self, other: int) -> Value:
        return self._operate("shl", other)

    def __rshift__(self, other: int) -> Value:
        return self._operate("ashr", other)

    def __and__(self, other: Value | int) -> Value:
        return self._operate("and", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._operate("xor", other)

    def __lt__(self, other: Value | float) -> Value:
        return self._compare("lt", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._compare("gt", other)

    def __ge__(self, other: Value | float) -> Value:
        return self._compare("ge", other)

    def equals(self, other: float) -> Value:
        return self._compare("eq", other)


class Lanes:
    """Writes one function on vectors of `count` lanes (1: on scalars)."""

    def __init__(self, count: int):
        self.count = count
        self._lines: list[str] = []
        self._declared: set[str] = set()
        self._names = 0
        self._block = "entry"

    # ---- text ----

    def _type(self, kind: str) -> str:
        return kind if self.count == 1 else f"<{self.count} x {kind}>"

    def _name(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def _define(self, kind: str, text: str) -> Value:
        value = Value(self, kind, self._name())
        self._lines.append(f"  {value.name} = {text}")
        return value

    def _start(self, block: str) -> None:
        self._block = block
        self._lines.append(f"{block}:")

    def function(self, symbol: str, body: Callable[..., Value], arguments: int) -> str:
        """The text of `define symbol(float lanes...)` with what `body(self, *values)` computes."""
        parameters = [Value(self, "float", f"%x{i}") for i in range(arguments)]
        result = body(self, *parameters)
        kind = self._type("float")
        head = f'define {kind} @"{symbol}"({", ".join(f"{kind} {p.name}" for p in parameters)}) {{'
        return "\n".join(
            [*sorted(self._declared), head, "entry:", *self._lines, f"  ret {kind} {result.name}", "}", ""]
        )

    def instruction(self, name: str, kind: str, *operands: Value) -> Value:
        return self._define(kind, f"{name} {self._type(operands[0].kind)} {', '.join(o.name for o in operands)}")

    def like(self, example: Value, value: Value | float) -> Value:
        return value if isinstance(value, Value) else self.const(value, example.kind)

    def const(self, value: float, kind: str = "float") -> Value:
        return Value(
            self, kind, _literal(value, kind) if self.count == 1 else f"splat ({kind} {_literal(value, kind)})"
        )

    # ---- operations ----

    def call(self, name: str, *args: Value) -> Value:
        """An LLVM intrinsic that gives the type of its first argument."""
        kind = args[0].kind
        lanes = "" if self.count == 1 else f"v{self.count}"
        symbol, type_ = f"@llvm.{name}.{lanes}{_SUFFIX[kind]}", self._type(kind)
        self._declared.add(f"declare {type_} {symbol}({', '.join([type_] * len(args))})")
        return self._define(kind, f"call {type_} {symbol}({', '.join(f'{type_} {a.name}' for a in args)})")

    def cast(self, x: Value, kind: str) -> Value:
        return self._define(kind, f"{_CASTS[x.kind, kind]} {self._type(x.kind)} {x.name} to {self._type(kind)}")

    def bits(self, x: Value) -> Value:
        """The bits of a float, as an integer of its width."""
        kind = _AS_BITS[x.kind]
        return self._define(kind, f"bitcast {self._type(x.kind)} {x.name} to {self._type(kind)}")

    def from_bits(self, x: Value) -> Value:
        kind = _AS_FLOAT[x.kind]
        return self._define(kind, f"bitcast {self._type(x.kind)} {x.name} to {self._type(kind)}")

    def multiply_add(self, a: Value, b: Value | float, c: Value | float) -> Value:
        """`a * b + c`, fused where the CPU can."""
        return self.call("fmuladd", a, self.like(a, b), self.like(a, c))

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's rule, the constant first in `coefficients`."""
        result = self.const(coefficients[-1], x.kind)
        for c in reversed(coefficients[:-1]):
            result = self.multiply_add(result, x, c)
        return result

    def absolute(self, x: Value) -> Value:
        return self.call("fabs", x)

    def sqrt(self, x: Value) -> Value:
        return self.call("sqrt", x)

    def with_sign(self, magnitude: Value, sign: Value | float) -> Value:
        return self.call("copysign", magnitude, self.like(magnitude, sign))

    def select(self, condition: Value, yes: Value | float, no: Value | float) -> Value:
        """`yes` where `condition` holds, else `no`, lane by lane; two numbers are float32 ones."""
        example = next((v for v in (yes, no) if isinstance(v, Value)), self.const(0.0))
        type_ = self._type(example.kind)
        options = f"{type_} {self.like(example, yes).name}, {type_} {self.like(example, no).name}"
        return self._define(example.kind, f"select {self._type('i1')} {condition.name}, {options}")

    def at_most(self, x: Value, bound: float) -> Value:
        """The smaller of the two; NaN stays NaN (one instruction, as LLVM's own minimum is not)."""
        return self.select(x > bound, bound, x)

    def at_least(self, x: Value, bound: float) -> Value:
        """The larger of the two; NaN stays NaN."""
        return self.select(x < bound, bound, x)

    def rounded(self, x: Value, factor: float = 1.0) -> tuple[Value, Value]:
        """(n + ROUND, whose low bits are n; n) for the integer n nearest to x * factor, below 2^22 (float64: 2^51)."""
        magic = ROUND[x.kind]
        raised = x + magic if factor == 1.0 else self.multiply_add(x, factor, magic)
        return raised, raised - magic

    def power_of_two(self, raised: Value, offset: int = 0) -> Value:
        """2^(n + offset) for the bits of `rounded`, where that is a normal float32: the shift drops all but n's."""
        return self.from_bits((raised << 23) + (ONE_BITS + (offset << 23)))

    def scaled(self, p: Value, raised: Value, offset: int = 0) -> Value:
        """p * 2^(n + offset) for bits whose low ones are n, in two steps: overflows and denormals come out right."""
        half = raised >> 1
        return p * self.power_of_two(half) * self.power_of_two(raised - half, offset)

    def where_any(self, condition: Value, rare: Callable[[], Value], common: Value) -> Value:
        """`rare()` in the lanes of the condition, `common` in the others; it is not run where no lane needs it."""
        some = condition.name
        if self.count > 1:
            symbol, type_ = f"@llvm.vector.reduce.or.v{self.count}i1", self._type("i1")
            self._declared.add(f"declare i1 {symbol}({type_})")
            some = self._name()
            self._lines.append(f"  {some} = call i1 {symbol}({type_} {condition.name})")
        before, number = self._block, self._names
        self._lines.append(f"  br i1 {some}, label %rare{number}, label %done{number}")
        self._start(f"rare{number}")
        value = self.select(condition, rare(), common)
        after = self._block
        self._lines.append(f"  br label %done{number}")
        self._start(f"done{number}")
        incoming = f"[ {common.name}, %{before} ], [ {value.name}, %{after} ]"
        return self._define(common.kind, f"phi {self._type(common.kind)} {incoming}")


def _literal(value: float, kind: str) -> str:
    """A constant as LLVM writes it: a float in the bits of the double of its value."""
    if kind in _AS_FLOAT:
        return str(int(value))
    if math.isnan(value):
        return "0x7FF8000000000000"
    single = struct.unpack("<f", struct.pack("<f", value))[0] if kind == "float" else value
    return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"
