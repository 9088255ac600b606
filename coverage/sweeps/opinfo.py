# SPDX-License-Identifier: Apache-2.0
"""PyTorch's operator database (OpInfo) as a sweep: every sample input of every entry, forward and backward."""

from __future__ import annotations

import difflib
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.errors import UserError

from .call import call_of
from .worker import BaseSweep, Sample, spread

#: Floating-point dtypes are swept forward and backward over the differentiable entries; the others forward, over all.
DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool")


def entry_name(info: Any) -> str:
    """The name of an OpInfo entry: its op, and the variant where it has one."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


@functools.cache
def _database() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {entry_name(info): info for info in torch_api.opinfo_database()}


def entry_names(dtype: str = "float32", only: list[str] | None = None) -> list[str]:
    """The entries that take `dtype`, in the database's order: the differentiable ones for a floating-point dtype.

    `only`: names of entries, or of ops (all variants). Raises UserError for a dtype or a name that is not there.
    """
    if dtype not in DTYPES:
        raise UserError(f"--dtype {dtype} is unknown; use one of {', '.join(DTYPES)}")
    wanted = getattr(torch, dtype)
    takes = {name for name, info in _database().items() if wanted in info.dtypes}
    forward_only = not wanted.is_floating_point
    names = [n for n, info in _database().items() if n in takes and (info.supports_autograd or forward_only)]
    if not only:
        return names
    chosen: list[str] = []
    for name in only:
        found = [n for n, info in _database().items() if name in (n, info.name)]
        if not found:
            close = difflib.get_close_matches(name, _database(), 3)
            hint = f"; close: {', '.join(close)}" if close else ""
            raise UserError(f"PyTorch's operator database has no entry {name!r}{hint}")
        if not takes.intersection(found):
            raise UserError(f"{name} does not take {dtype} on a CPU, says PyTorch's operator database")
        chosen += [n for n in found if n in takes]
    return list(dict.fromkeys(chosen))


class Sweep(BaseSweep):
    """Settings: dtype (of DTYPES), samples (at most so many an entry, spread over all of them; None: all)."""

    def __init__(self, settings: dict[str, Any]):
        super().__init__(settings)
        self.dtype: torch.dtype = getattr(torch, settings.get("dtype", "float32"))
        self.limit: int | None = settings.get("samples")

    def entries(self) -> list[str]:
        return entry_names(str(self.dtype).removeprefix("torch."))

    def samples(self, entry: str) -> dict[int, Callable[[], Sample]]:
        info = _database()[entry]
        backward = info.supports_autograd and self.dtype in info.backward_dtypes and self.dtype.is_floating_point
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # All of them at once: the generators draw from torch's own generator, which checking a sample disturbs.
            inputs = list(info.sample_inputs("cpu", self.dtype, requires_grad=backward))
        return {n: functools.partial(self._sample, info, inputs[n], backward) for n in spread(len(inputs), self.limit)}

    @staticmethod
    def _sample(info: Any, sample: Any, backward: bool) -> Sample:
        function = info.op

        def call(first: Any, *args: Any, **kwargs: Any) -> Any:
            return sample.output_process_fn_grad(function(first, *args, **kwargs))

        args = (sample.input, *sample.args)
        return Sample(call_of(info.name, call, args, dict(sample.kwargs), backward))


def sample_calls(only: Sequence[str] | None = None) -> Iterator[tuple[str, list[tuple[Callable[..., Any], Any]]]]:
    """Every entry that takes float32, with (function, its arguments) of each sample: forward only, seeded by entry."""
    for name, info in _database().items():
        if torch.float32 not in info.dtypes or (only is not None and name not in only):
            continue
        torch.manual_seed(0)
        try:
            samples = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
        except Exception:  # needs a library that is not there
            continue
        yield name, [(functools.partial(_called, info, s), (s.input, s.args, s.kwargs)) for s in samples]


def _called(info: Any, sample: Any, first: Any, args: Any, kwargs: Any) -> Any:
    return sample.output_process_fn_grad(info.op(first, *args, **kwargs))
