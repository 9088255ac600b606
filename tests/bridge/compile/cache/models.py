# SPDX-License-Identifier: Apache-2.0
"""Trains small models once and writes what came of it: the tests of the cache run this twice, in two processes.

`python models.py OUT [other]` writes JSON to OUT: for each model a digest of each output and gradient, whether
they agree with eager's, and what the records of its graphs say. With `other`, sizes and constants have other names and
values, as they may have in another process.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.compile.cache import key as cache_key
from relaxgrad.coverage.harness.numbers import compare_all, float64_run, same

# The sources may be edited while the tests run, which is none of these tests' business.
cache_key.sources = lambda: "as they were"  # type: ignore[assignment]  # was cached
cache_key.changed_since = lambda time: False  # type: ignore[assignment]


@torch.library.custom_op("relaxgrad_cache_tests::third", mutates_args=())
def third(x: Tensor) -> Tensor:
    return x / 3


third.register_fake(lambda x: torch.empty_like(x))
third.register_autograd(lambda ctx, grad: third(grad))

OTHER = "other" in sys.argv


def mlp() -> tuple[Any, list[Any]]:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)), [torch.randn(5, 6)]


def convolution() -> tuple[Any, list[Any]]:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), [torch.randn(2, 3, 7, 7)]


def dropout() -> tuple[Any, list[Any]]:
    return nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.4), nn.Linear(32, 3)), [torch.randn(5, 6)]


def attention() -> tuple[Any, list[Any]]:
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.1), [torch.randn(2, 5, 16)]


def checkpointed() -> tuple[Any, list[Any]]:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Tanh())

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False)

    return Model(), [torch.randn(5, 6)]


def constant() -> tuple[Any, list[Any]]:
    values = [4.0, 5.0, 6.0] if OTHER else [1.0, 2.0, 3.0]
    return lambda x: (x * torch.tensor(values)).sin(), [torch.randn(2, 3)]


def fallen_back() -> tuple[Any, list[Any]]:
    return lambda x: third(x.sin()).exp(), [torch.randn(4)]


def sizes() -> tuple[Any, list[Any]]:
    def f(x: Tensor, y: Tensor) -> Any:
        z = torch.cat([x, y], 1)
        return third(z.view(-1) * 2).exp() + z.shape[1]

    def renamed(second: Tensor, first: Tensor) -> Any:
        z = torch.cat([second, first], 1)
        return third(z.view(-1) * 2).exp() + z.shape[1]

    return renamed if OTHER else f, [torch.randn(3, 4), torch.randn(3, 5)]


def sizes_again() -> list[Any]:
    """More inputs for `sizes`: after the one above, of another size."""
    return [torch.randn(7, 2), torch.randn(7, 11)]


def digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()


def results(function: Callable[..., Any], model: Any, inputs: list[Any]) -> dict[str, Tensor]:
    """One step: the output, gradients of inputs and parameters, and buffers as they are after it."""
    given = [t.detach().clone().requires_grad_() for t in inputs]
    torch.manual_seed(1)
    output = function(*given)
    output.square().sum().backward()
    found = {"output": output} | {f"gradient of input {i}": t.grad for i, t in enumerate(given)}
    if isinstance(model, nn.Module):
        found |= {f"gradient of {name}": p.grad for name, p in model.named_parameters()}
        found |= {name: b.clone() for name, b in model.named_buffers()}
        model.zero_grad()
    return found


def run(build: Callable[[], tuple[Any, list[Any]]], then: list[Any] | None, dynamic: bool) -> dict[str, Any]:
    torch.compiler.reset()
    torch.manual_seed(0)
    model, inputs = build()
    torch.manual_seed(0)
    reference, _ = build()
    wide = copy.deepcopy(reference).double() if isinstance(reference, nn.Module) else reference
    compiled = torch.compile(model, backend=relaxgrad, dynamic=dynamic or None, fullgraph=True)
    digests, right = [], True
    with record_graphs() as records:
        for given in [inputs] if then is None else [inputs, then]:
            found = results(compiled, model, given)
            expected = results(reference, reference, given)
            with float64_run():
                exact = results(wide, wide, [t.double() for t in given])
            assert found.keys() == expected.keys()
            right &= all(c.passed or same(found[c.name], expected[c.name]) for c in compare_all(exact, expected, found))
            digests.append({name: digest(tensor) for name, tensor in found.items()})
    return {
        "digests": digests,
        "right": right,
        "loaded": ["cache" in r.seconds for r in records],
        "kernels": sum(r.kernels for r in records),
        "symbolic": any(r.symbolic for r in records),
        "calls": [r.calls for r in records],
        "runs": [r.runs for r in records],
        "reasons": [r.to_json() for record in records for r in record.reasons],
        "lines": [n.source.line for record in records for n in record.nodes if n.source is not None],
        "tvm": "tvm" in sys.modules,
    }


def main() -> None:
    found: dict[str, Any] = {}
    for build in (mlp, convolution, dropout, attention, checkpointed, constant, fallen_back, sizes):
        symbolic = build is sizes
        torch.manual_seed(2)
        found[build.__name__] = run(build, sizes_again() if symbolic else None, symbolic)
    Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
