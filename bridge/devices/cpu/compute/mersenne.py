# SPDX-License-Identifier: Apache-2.0
"""PyTorch's CPU generator, the Mersenne Twister MT19937, in generated code: many draws at a time.

ATen draws one number after the other. Here the generator's state goes in and comes out, its words are made 624 at a
time (Matsumoto and Nishimura, 1998), and LLVM makes vectors of each of the loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ....importer.compute.layout import const, element_count
from ....importer.compute.pointwise import number
from ....importer.compute.program import Program

Expr = Any

WORDS = 624
_MIDDLE = 397
#: `torch.get_rng_state()` as int64: the seed, words left (and a flag in the upper half), the next word, the words, and
#: what the normal distribution keeps.
STATE = 632
_LEFT, _NEXT, _FIRST = 1, 2, 3
_LOW_HALF = 0xFFFFFFFF


def bernoulli(state: te.Tensor, shape: Sequence[Any], p: float, dtype: str) -> list[te.Tensor]:
    """[ones with probability `p` of `shape` and `dtype`, the state afterwards], as `Tensor.bernoulli_(p)` draws them.

    An element takes two words, the first of them the upper half of a number of 64 bits; it is one where the number's
    low 53 bits, as a fraction, are below `p` (ATen's uniform_real_distribution<double>).
    """
    count = element_count(shape)
    below = const(math.ceil(Fraction(p) * 2**53))

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        with IRBuilder() as builder, T.serial(0, 1):
            given, (out, after) = ins[0], outs
            flat = T.decl_buffer((count,), out.dtype, data=out.data)  # an index of `out` would divide
            words = T.alloc_buffer((WORDS,), "uint32", scope="global")
            drawn = T.alloc_buffer((WORDS + 2,), "uint32", scope="global")
            program = Program()
            with T.serial(0, STATE) as i:
                T.buffer_store(after, tirx.BufferLoad(given, [i]), [i])
            with T.serial(0, WORDS) as i:
                T.buffer_store(words, tirx.BufferLoad(given, [i + const(_FIRST)]).astype("uint32"), [i])
            left = program.let(tirx.bitwise_and(tirx.BufferLoad(given, [const(_LEFT)]), const(_LOW_HALF)))
            following = tirx.BufferLoad(given, [const(_NEXT)])
            used = program.cell(tirx.Select(left <= const(1), const(WORDS), following))
            done, over = program.cell(const(0)), program.cell(const(0))  # `over`: a word that waits for its second
            with program.loop(done.get() < count):
                with program.when(used.get() >= const(WORDS)):
                    _twist(words)
                    used.set(const(0))
                wanted = (count - done.get()) * const(2) - over.get()
                take = program.let(tirx.min(const(WORDS) - used.get(), wanted))
                with T.serial(0, take) as i:
                    T.buffer_store(drawn, _tempered(tirx.BufferLoad(words, [used.get() + i])), [over.get() + i])
                ready = program.let(over.get() + take)
                pairs = program.let(tirx.floordiv(ready, const(2)))
                with T.serial(0, pairs) as i:
                    upper, lower = (tirx.BufferLoad(drawn, [i * const(2) + const(k)]).astype("int64") for k in (0, 1))
                    low_bits = tirx.bitwise_and(upper, const((1 << 21) - 1))
                    one = tirx.bitwise_or(tirx.shift_left(low_bits, const(32)), lower) < below
                    value = one if dtype == "bool" else tirx.Select(one, number(1, dtype), number(0, dtype))
                    T.buffer_store(flat, value, [done.get() + i])
                T.buffer_store(drawn, tirx.BufferLoad(drawn, [tirx.max(ready - const(1), const(0))]), [const(0)])
                over.set(ready - pairs * const(2))
                used.set(used.get() + take)
                done.set(done.get() + pairs)
            with T.serial(0, WORDS) as i:
                T.buffer_store(after, tirx.BufferLoad(words, [i]).astype("int64"), [i + const(_FIRST)])
            flag = tirx.bitwise_and(tirx.BufferLoad(given, [const(_LEFT)]), const(~_LOW_HALF))
            T.buffer_store(after, tirx.bitwise_or(flag, const(WORDS + 1) - used.get()), [const(_LEFT)])
            T.buffer_store(after, used.get(), [const(_NEXT)])
        return builder.get()

    return list(te.extern([tuple(shape), (STATE,)], [state], body, name="bernoulli", dtype=[dtype, "int64"]))


def _word(value: int) -> Expr:
    return tirx.const(value, "uint32")


def _twist(words: Any) -> None:
    """The next 624 words in place of the last ones."""

    def step(k: Expr, following: Expr, other: Expr) -> None:
        here, there = tirx.BufferLoad(words, [k]), tirx.BufferLoad(words, [following])
        mixed = tirx.bitwise_or(tirx.bitwise_and(here, _word(0x80000000)), tirx.bitwise_and(there, _word(0x7FFFFFFF)))
        last_bit = tirx.bitwise_and(there, _word(1))
        turned = tirx.bitwise_xor(tirx.shift_right(mixed, _word(1)), last_bit * _word(0x9908B0DF))
        T.buffer_store(words, tirx.bitwise_xor(tirx.BufferLoad(words, [other]), turned), [k])

    with T.serial(0, WORDS - _MIDDLE) as k:
        step(k, k + const(1), k + const(_MIDDLE))
    with T.serial(0, _MIDDLE - 1) as j:
        k = j + const(WORDS - _MIDDLE)
        step(k, k + const(1), j)
    step(const(WORDS - 1), const(0), const(_MIDDLE - 1))


def _tempered(y: Expr) -> Expr:
    y = tirx.bitwise_xor(y, tirx.shift_right(y, _word(11)))
    y = tirx.bitwise_xor(y, tirx.bitwise_and(tirx.shift_left(y, _word(7)), _word(0x9D2C5680)))
    y = tirx.bitwise_xor(y, tirx.bitwise_and(tirx.shift_left(y, _word(15)), _word(0xEFC60000)))
    return tirx.bitwise_xor(y, tirx.shift_right(y, _word(18)))
