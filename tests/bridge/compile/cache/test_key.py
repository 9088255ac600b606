# SPDX-License-Identifier: Apache-2.0
"""Two different graphs never share a key; one graph traced again does, whatever its symbols are called."""

from __future__ import annotations

import functools
import json
import operator
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.fx
from torch import Tensor

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.compile.cache import key as cache_key
from relaxgrad.bridge.compile.cache.key import key_of
from relaxgrad.bridge.compile.cache.text import NotPlain, decode, encode
from relaxgrad.bridge.importer import registry
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.schemas import CapturedGraph, GraphKind, GraphOutput, OutputRole

aten = torch.ops.aten


def captured(
    *inputs: Any,
    op: Any = aten.add.Tensor,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    kind: GraphKind = GraphKind.FORWARD,
    role: OutputRole = OutputRole.OUTPUT,
    val: Any = None,
    attribute: Any = None,
) -> CapturedGraph:
    """A graph of one call: `op(*placeholders, *args, **kwargs)`, whose result is like the first input."""
    graph = torch.fx.Graph()
    nodes = []
    for number, value in enumerate(inputs):
        nodes.append(graph.placeholder(f"x{number}"))
        nodes[-1].meta["val"] = value
    root = torch.nn.Module()
    if attribute is not None:
        setattr(root, "constant", attribute)  # noqa: B010  # of any type
        nodes.append(graph.get_attr("constant"))
    call = graph.call_function(op, tuple(nodes))
    call.meta["val"] = inputs[0] if val is None else val
    graph.output((call,))
    module = torch.fx.GraphModule(root, graph)
    call.args, call.kwargs = (*nodes, *args), kwargs or {}  # torch.fx writes no source of some of these
    return CapturedGraph(module, kind, (), (GraphOutput(call.name, role),))


def name(graph: CapturedGraph, *options: Any) -> str:
    return key_of(graph, options).name


def tensor(*shape: int, stride: tuple[int, ...] | None = None, **kwargs: Any) -> Tensor:
    """Of no data, as a FakeTensor is."""
    if stride is None:
        return torch.empty(shape, device="meta", **kwargs)
    return torch.empty_strided(shape, stride, device="meta", **kwargs)


T = functools.partial(tensor, 2, 3)
INF, NAN = float("inf"), float("nan")

SCALARS = [0, 1, -1, True, False, None, 0.0, -0.0, 1.0, INF, -INF, NAN, 1 + 0j, 1j, complex(0.0, -0.0), 0.1, "1",
           "True", torch.float32, torch.float64, torch.strided, torch.contiguous_format, torch.device("cpu"),
           torch.device("cuda"), torch.device("cuda", 0), 2**70, [], (), {}, [1], (1,), [[1]], [1, 1], [True], [1.0],
           {"a": 1}, {"b": 1}, slice(1), slice(None, None, 1), ..., torch.Size([1]), aten.mul.Tensor, aten.mul.Scalar,
           operator.add, operator.sub]  # fmt: skip


def test_arguments_that_differ_in_any_way_have_different_keys() -> None:
    """All pairs at once: True, 1 and 1.0; 0.0 and -0.0; infinities; a list and a tuple; nested ones."""
    assert len({json.dumps(encode(value)) for value in SCALARS}) == len(SCALARS)
    given = [value for value in SCALARS if not isinstance(value, torch.Size)]  # torch.fx keeps these as tuples
    names = [name(captured(T(), args=(value,))) for value in given]
    assert len(set(names)) == len(given)
    assert names == [name(captured(T(), args=(value,))) for value in given]


def test_texts_are_read_back_as_what_they_were() -> None:
    for value in SCALARS:
        back = decode(encode(value))
        assert type(back) is type(value)
        assert repr(back) == repr(value)


Z = functools.partial(captured, T(), T())
PAIRS: dict[str, tuple[Callable[[], CapturedGraph], Callable[[], CapturedGraph]]] = {
    "op": (lambda: Z(op=aten.add.Tensor), lambda: Z(op=aten.sub.Tensor)),
    "overload": (lambda: Z(op=aten.mean.default), lambda: Z(op=aten.mean.dim)),
    "keyword": (lambda: Z(kwargs={"alpha": 2}), lambda: Z(kwargs={"alpha": 3})),
    "keyword for position": (lambda: Z(args=(2,)), lambda: Z(kwargs={"alpha": 2})),
    "no keyword": (lambda: Z(), lambda: Z(kwargs={"alpha": 1})),
    "nested argument": (lambda: Z(args=([[1, 2], [3]],)), lambda: Z(args=([[1], [2, 3]],))),
    "dtype of an input": (lambda: captured(T(), T()), lambda: captured(T(), T(dtype=torch.float64))),
    "dtype of the result": (lambda: Z(val=T()), lambda: Z(val=T(dtype=torch.float16))),
    "size": (lambda: captured(tensor(2, 3)), lambda: captured(tensor(3, 2))),
    "size of one": (lambda: captured(tensor(2)), lambda: captured(tensor(2, 1))),
    "stride": (lambda: captured(T(stride=(3, 1))), lambda: captured(T(stride=(1, 2)))),
    "stride of one row": (
        lambda: captured(tensor(1, 3, stride=(3, 1))),
        lambda: captured(tensor(1, 3, stride=(5, 1))),
    ),
    "offset": (lambda: captured(tensor(4)[:3]), lambda: captured(tensor(4)[1:])),
    "device": (lambda: captured(T()), lambda: captured(torch.empty(2, 3))),
    "layout": (lambda: captured(torch.empty(2, 3)), lambda: captured(torch.empty(2, 3).to_sparse())),
    "layout of two sparse ones": (
        lambda: captured(torch.zeros(2, 3).to_sparse_csr()),
        lambda: captured(torch.zeros(2, 3).to_sparse_csc()),
    ),
    "quantized": (
        lambda: captured(torch._empty_affine_quantized([2], scale=1.0, zero_point=0, dtype=torch.qint8)),
        lambda: captured(torch.zeros(2, dtype=torch.int8)),
    ),
    "a number for a tensor": (lambda: captured(T(), 1.0), lambda: captured(T(), T())),
    "kind of graph": (lambda: Z(kind=GraphKind.INFERENCE), lambda: Z(kind=GraphKind.BACKWARD)),
    "role of an output": (lambda: Z(role=OutputRole.OUTPUT), lambda: Z(role=OutputRole.SAVED)),
    "one input used twice": (lambda: _two(0, 1), lambda: _two(0, 0)),
    "constant's dtype": (
        lambda: captured(T(), attribute=torch.zeros(3)),
        lambda: captured(T(), attribute=torch.zeros(3, dtype=torch.int64)),
    ),
    "constant's stride": (
        lambda: captured(T(), attribute=torch.zeros(6, 2)[:, 0]),
        lambda: captured(T(), attribute=torch.zeros(6)),
    ),
    "a view that shares memory": (
        lambda: captured(BASE, op=aten.view.default, args=([6],), val=BASE.view(6)),
        lambda: captured(BASE, op=aten.view.default, args=([6],), val=tensor(6)),
    ),
    "a tuple for a list of results": (lambda: Z(val=(T(), T())), lambda: Z(val=[T(), T()])),
}  # fmt: skip
BASE = T()


def _two(first: int, second: int) -> CapturedGraph:
    graph = torch.fx.Graph()
    inputs = [graph.placeholder("a"), graph.placeholder("b")]
    call = graph.call_function(aten.add.Tensor, (inputs[first], inputs[second]))
    for node in (*inputs, call):
        node.meta["val"] = T()
    graph.output((call,))
    output = GraphOutput(call.name, OutputRole.OUTPUT)
    return CapturedGraph(torch.fx.GraphModule(torch.nn.Module(), graph), GraphKind.FORWARD, (), (output,))


@pytest.mark.parametrize("what", PAIRS)
def test_graphs_that_differ_in_one_thing_have_different_keys(what: str) -> None:
    one, other = PAIRS[what]
    assert name(one()) != name(other())
    assert name(one()) == name(one())
    assert name(other()) == name(other())


def test_options_have_a_part_in_the_key() -> None:
    given = [("aten", "llvm"), ("error", "llvm"), ("aten", "llvm:znver4"), ("aten",), ("aten", "llvm", "raise")]
    assert len({name(Z(), *options) for options in given}) == len(given)


def test_values_of_constants_have_none() -> None:
    assert name(captured(T(), attribute=torch.zeros(3))) == name(captured(T(), attribute=torch.ones(3)))


def test_what_lies_around_a_graph_has_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name(Z())}
    monkeypatch.setattr(captured(T()).device, "fingerprint", lambda: ["another machine"])
    names.add(name(Z()))
    monkeypatch.setattr(cache_key, "_installation", lambda: [["2.99", "0.99"], "", "Linux", ["x86_64", "flags: none"]])
    names.add(name(Z()))
    monkeypatch.setattr(cache_key, "sources", lambda: "edited")
    names.add(name(Z()))
    torch.set_default_dtype(torch.float64)
    try:
        names.add(name(Z()))
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(names) == 5


# ---- sizes that are symbols ----


def symbolic(*shape: int, before: int = 0, guards: Callable[[Tensor], object] | None = None) -> Tensor:
    """A FakeTensor with a symbol for each distinct size; `before` others are made first, so that names differ."""
    mode = torch_api.symbolic_fake_mode()
    for number in range(before):
        torch_api.fake_tensor(mode, torch.empty(101 + number), True)
    fake = torch_api.fake_tensor(mode, torch.empty(shape), True)
    if guards is not None:
        guards(fake)
    return fake


def test_symbols_of_other_names_are_the_same_graph() -> None:
    a, b = symbolic(5, 7), symbolic(5, 7, before=3)
    assert str(a.shape) != str(b.shape)
    one, other = key_of(captured(a), ()), key_of(captured(b), ())
    assert one.name == other.name
    assert one.symbols == tuple(map(str, a.shape))
    assert other.symbols == tuple(map(str, b.shape))


def test_example_sizes_have_no_part_in_the_key() -> None:
    assert name(captured(symbolic(5, 7))) == name(captured(symbolic(11, 4)))


SYMBOLIC: dict[str, tuple[Callable[[], CapturedGraph], Callable[[], CapturedGraph]]] = {
    "equal sizes": (lambda: captured(symbolic(5, 5)), lambda: captured(symbolic(5, 7))),
    "static for symbolic": (lambda: captured(symbolic(5)), lambda: captured(tensor(5))),
    "which size": (lambda: captured(*_sizes(lambda a, b: a)), lambda: captured(*_sizes(lambda a, b: b))),
    "sum": (lambda: captured(*_sizes(lambda a, b: a + b)), lambda: captured(*_sizes(lambda a, b: a + 2 * b))),
    "number in a sum": (lambda: captured(*_sizes(lambda a, b: a + 1)), lambda: captured(*_sizes(lambda a, b: a + 2))),
    "product": (lambda: captured(*_sizes(lambda a, b: a + b)), lambda: captured(*_sizes(lambda a, b: a * b))),
    "division": (lambda: captured(*_sizes(lambda a, b: a // b)), lambda: captured(*_sizes(lambda a, b: b // a))),
    "remainder": (lambda: captured(*_sizes(lambda a, b: a // 2)), lambda: captured(*_sizes(lambda a, b: a % 2))),
    "symbolic float": (lambda: captured(*_sizes(lambda a, b: a)), lambda: captured(*_sizes(lambda a, b: a * 1.0))),
    "known bounds": (lambda: captured(symbolic(5)), lambda: captured(symbolic(5, guards=_below_nine))),
    "argument": (lambda: _sized_argument(0), lambda: _sized_argument(1)),
}  # fmt: skip


def _below_nine(fake: Tensor) -> None:
    assert fake.shape[0] < 9


def _sizes(function: Callable[[Any, Any], Any]) -> list[Any]:
    fake = symbolic(5, 7)
    return [fake, function(*fake.shape)]


def _sized_argument(dim: int) -> CapturedGraph:
    fake = symbolic(5, 7)
    return captured(fake, args=([fake.shape[dim]],))


@pytest.mark.parametrize("what", SYMBOLIC)
def test_symbolic_graphs_that_differ_in_one_thing_have_different_keys(what: str) -> None:
    one, other = SYMBOLIC[what]
    assert name(one()) != name(other())
    assert name(one()) == name(one())


def test_sums_are_the_same_in_any_order_of_their_symbols() -> None:
    """Sympy orders a sum by names, and names differ between processes."""
    one, other = _sizes(lambda a, b: a + b), _sizes(lambda a, b: b + a)
    assert name(captured(*one)) == name(captured(*other))


# ---- what has no key ----


class Anything:
    pass


@pytest.mark.parametrize(
    "graph",
    [
        lambda: captured(T(), args=(Anything(),)),
        lambda: captured(T(), args=([torch.Generator()],)),
        lambda: captured(T(), op=lambda x: x),
        lambda: captured(T(), op=symbolic),  # a function of the user's own
        lambda: captured(T(), attribute=torch.nn.Linear(2, 2)),
        lambda: captured(T(), val=Anything()),
    ],
)
def test_graphs_that_hold_what_has_no_text_have_no_key(graph: Callable[[], CapturedGraph]) -> None:
    with pytest.raises(NotPlain):
        key_of(graph(), ())


def test_an_op_with_a_converter_of_the_users_own_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    converter = registry.Implementation(aten.add.Tensor, Kind.NATIVE, lambda ctx, x, y: x)
    monkeypatch.setitem(registry.registry(), aten.add.Tensor, [converter])
    with pytest.raises(NotPlain, match="converter"):
        key_of(Z(), ())
    monkeypatch.undo()
    assert name(Z())


# ---- the bridge's own sources ----


def test_an_edited_bridge_has_other_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner" / "a.py"
    file.write_text("x = 1\n")
    monkeypatch.setattr(cache_key, "_BRIDGE", tmp_path)
    hashes = []
    for change in (lambda: None, lambda: file.write_text("x = 2\n"), lambda: file.rename(tmp_path / "b.py")):
        change()
        cache_key.sources.cache_clear()
        cache_key._source_files.cache_clear()
        hashes.append(cache_key.sources())
    cache_key.sources.cache_clear()
    assert len(set(hashes)) == 3


def test_an_edit_after_the_bridge_was_loaded_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    monkeypatch.setattr(cache_key, "_BRIDGE", tmp_path)
    os.utime(file, (time.time() - 60, time.time() - 60))
    loaded = time.time() - 30
    assert not cache_key.changed_since(loaded)
    file.write_text("x = 2\n")
    assert cache_key.changed_since(loaded)
    file.unlink()
    assert cache_key.changed_since(loaded)
