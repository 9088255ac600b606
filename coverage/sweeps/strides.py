# SPDX-License-Identifier: Apache-2.0
"""Strides of results: OpInfo's samples with their tensors laid out anew; eager's strides against what a compiler has.

Three ways are compared with eager: `fake` (torch's FakeTensors on the op as the user calls it), `traced` (the bridge's
decompositions, which is what the importer reads) and `compiled` (the whole backend, what the user gets).

    python -m relaxgrad.coverage.sweeps.strides [--samples N] [--ways fake,traced,compiled] [ENTRY ...]
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relaxgrad.bridge import pytree, torch_api
from relaxgrad.bridge.backend import relaxgrad
from relaxgrad.bridge.capture import decompositions

from .opinfo import sample_calls
from .worker import spread

WAYS = ("fake", "traced", "compiled")
TABLE = Path(__file__).parent / "expected_strides.tsv"

#: Sizes and strides of a result; None of one that has none, or whose sizes depend on data.
Layout = tuple[tuple[Any, ...], tuple[Any, ...]] | None

Function = Callable[..., Any]


def _transposed(x: Tensor) -> Tensor | None:
    return x.mT.contiguous().mT if x.dim() >= 2 else None


def _channels_last(x: Tensor) -> Tensor | None:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats[x.dim()]) if x.dim() in formats else None


def _expanded(x: Tensor) -> Tensor | None:
    return x[:1].clone().expand(x.shape) if x.dim() and x.numel() else None


def _with_offset(x: Tensor) -> Tensor:
    view = torch.zeros(x.numel() + 3, dtype=x.dtype)[3:].view(x.shape)
    return view.copy_(x)


def _odd_ones(x: Tensor) -> Tensor | None:
    row_major = x.contiguous()
    strides = [77 if size == 1 else s for size, s in zip(x.shape, row_major.stride(), strict=True)]
    return row_major.as_strided(x.shape, strides) if 1 in x.shape else None


LAYOUTS: dict[str, Callable[[Tensor], Tensor | None]] = {
    "contiguous": lambda x: x,
    "transposed": _transposed,
    "channels_last": _channels_last,
    "expanded": _expanded,
    "offset": _with_offset,
    "ones": _odd_ones,
}


@dataclass(frozen=True)
class Difference:
    """A result whose strides are not eager's, in a dim that is longer than one."""

    entry: str
    sample: int
    layout: str  # of LAYOUTS; with `, first` where only the first tensor has it
    way: str
    eager: Layout
    found: Layout


@dataclass
class Survey:
    """What a sweep saw."""

    entries: set[str] = field(default_factory=set)
    calls: int = 0
    not_run: Counter[str] = field(default_factory=Counter)  # by way: what raised there
    differences: list[Difference] = field(default_factory=list)

    def __str__(self) -> str:
        by_way = Counter(d.way for d in self.differences)
        return (
            f"{len(self.entries)} entries, {self.calls} calls; strides other than eager's: {dict(by_way)}; "
            f"not run: {dict(self.not_run)}"
        )


def survey(
    entries: Sequence[str] | None = None, ways: Sequence[str] = WAYS, samples: int = 2, progress: bool = False
) -> Survey:
    """Compares at most `samples` samples an entry, in each layout that they can have: all tensors, and the first."""
    found = Survey()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry, calls in sample_calls(entries):
            for number in spread(len(calls), samples):
                function, given = calls[number]
                for layout, laid in _relaid(given):
                    _compare(found, entry, number, layout, function, laid, ways)
            if progress:
                print(entry, found, flush=True)
    return found


def _relaid(given: Any) -> Iterator[tuple[str, Any]]:
    leaves, spec = pytree.tree_flatten(given)
    places = [n for n, x in enumerate(leaves) if isinstance(x, Tensor) and x.layout is torch.strided]
    for name, lay in LAYOUTS.items():
        for suffix, chosen in (("", places), (", first", places[:1])):
            if suffix and (len(places) < 2 or name == "contiguous"):
                continue
            made = {n: lay(leaves[n].detach()) for n in chosen}
            if any(x is not None for x in made.values()):
                new = [made[n] if made.get(n) is not None else leaf for n, leaf in enumerate(leaves)]
                yield name + suffix, pytree.tree_unflatten(new, spec)


def _compare(
    found: Survey, entry: str, number: int, layout: str, function: Function, given: Any, ways: Sequence[str]
) -> None:
    leaves, spec = pytree.tree_flatten(given)
    places = [n for n, x in enumerate(leaves) if isinstance(x, Tensor)]

    def call(*tensors: Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        return function(*pytree.tree_unflatten(filled, spec))

    def inputs() -> list[Tensor]:
        return [_copied(leaves[n]) for n in places]

    try:
        with torch.no_grad():
            eager = _layouts(call(*inputs()))
    except Exception:  # not a call that eager takes
        found.not_run["eager"] += 1
        return
    found.entries.add(entry)
    found.calls += 1
    for way in ways:
        try:
            with torch.no_grad():
                others = _BY_WAY[way](call, inputs())
        except Exception:
            found.not_run[way] += 1
            continue
        for real, other in zip(eager, others, strict=False):
            if _differ(real, other):
                found.differences.append(Difference(entry, number, layout, way, real, other))


def _copied(x: Tensor) -> Tensor:
    """A copy in memory of its own, with the same strides and offset."""
    if x.layout is not torch.strided:
        return x.clone()
    memory = x.untyped_storage().clone()
    return torch.empty(0, dtype=x.dtype).set_(memory, x.storage_offset(), x.shape, x.stride())


def _layouts(results: Any) -> list[Layout]:
    tensors = [x for x in pytree.tree_leaves(results) if isinstance(x, Tensor)]
    return [
        (tuple(x.shape), tuple(x.stride())) if x.layout is torch.strided and not torch_api.has_symbols(x) else None
        for x in tensors
    ]


def _differ(a: Layout, b: Layout) -> bool:
    if a is None or b is None or a[0] != b[0] or 0 in a[0]:
        return False
    return any(s != t for s, t, size in zip(a[1], b[1], a[0], strict=True) if size > 1)


def _fake(call: Function, inputs: list[Tensor]) -> list[Layout]:
    mode = torch_api.FakeTensorMode()
    fakes = [mode.from_tensor(x) for x in inputs]
    with mode:
        return _layouts(call(*fakes))


def _traced(call: Function, inputs: list[Tensor]) -> list[Layout]:
    make_fx = torch_api.private("proxy_tensor").make_fx
    functional = torch.func.functionalize(call)
    graph = make_fx(functional, decomposition_table=_table(), tracing_mode="fake")(*inputs).graph
    output = next(n for n in graph.nodes if n.op == "output")
    return _layouts(torch.fx.node.map_arg(output.args[0], lambda n: n.meta["val"]))


@functools.cache
def _table() -> dict[Any, Callable[..., Any]]:
    return decompositions()


def _compiled(call: Function, inputs: list[Tensor]) -> list[Layout]:
    torch.compiler.reset()
    return _layouts(torch.compile(call, backend=relaxgrad, dynamic=False)(*inputs))


_BY_WAY: dict[str, Callable[[Function, list[Tensor]], list[Layout]]] = {
    "fake": _fake,
    "traced": _traced,
    "compiled": _compiled,
}


def expected(path: Path = TABLE) -> dict[tuple[str, str], str]:
    """(way, entry) -> why its strides may differ. Raises ValueError for a line that is not in the format."""
    table = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            columns = line.split("\t")
            if len(columns) != 3 or not all(c.strip() for c in columns):
                raise ValueError(f"{path.name}: not `way TAB entry TAB reason`: {line!r}")
            table[columns[0], columns[1]] = columns[2]
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="strides of results against eager's")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("entries", nargs="*")
    args = parser.parse_args()
    found = survey(args.entries or None, args.ways.split(","), args.samples)
    for difference in found.differences:
        print(difference)
    print(found)


if __name__ == "__main__":
    main()
