# SPDX-License-Identifier: Apache-2.0
"""Legitimate runs of a training step, validated: eager's own variants, and compilers without a planted fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from relaxgrad.bridge import torch_api

from ..harness import numbers
from ..harness.conditioning import (
    VARIANTS,
    Compile,
    EagerSpread,
    conditioning,
    eager_variants,
    float64_difference,
    is_ill_conditioned,
)
from ..harness.models import describe
from ..harness.problem import Problem, seed_everything
from ..zoo import ZOO
from .planted import eager_step, times_eager, validate

COMPILERS = ("aot_eager", "inductor", "relaxgrad")


def try_legitimate(model: str, seed: int) -> list[dict[str, Any]]:
    """A step of each of eager's variants and of COMPILERS, all drawing eager's random numbers, held against float64.

    A row a run: {"model", "seed", "run", "right", "as_eager", "times", "ill_conditioned": whether what is not right is
    no steadier in eager, "told": the figures, or what a compiler raised}.
    """

    def build() -> Problem:
        return ZOO[model].build(seed)

    reference, eager = numbers.float64_step(build(), seed), eager_step(build(), seed)
    spread = EagerSpread(build, seed, reference, eager, steps=1)
    rows = []
    for name, run in eager_variants(build, seed, 1, VARIANTS):
        found = validate(reference, eager, run.first)
        asked = None
        if not _right(found):
            others = ((other, errors) for other, errors in spread if other != name)
            asked = conditioning(seed, reference, eager, run.first, others)
        rows.append(_row(model, seed, name, found, asked is not None and asked.covered, asked.told() if asked else ""))
    for name in COMPILERS:
        rows.append(_compiled(model, seed, name, build, reference, eager, spread))
    return rows


def _compiled(
    model: str,
    seed: int,
    name: str,
    build: Any,
    reference: numbers.StepValues,
    eager: numbers.StepValues,
    spread: EagerSpread,
) -> dict[str, Any]:
    def compile(module: torch.nn.Module) -> Any:
        return torch.compile(module, backend=name)

    try:
        if name == "inductor":
            torch_api.load_inductor(draws_as_eager=True)
        with torch_api.numpy_draws_as_in_eager():
            result = _step(build(), seed, compile)
            found = validate(reference, eager, result)
            if _right(found):
                return _row(model, seed, name, found, False, "")
            asked = conditioning(seed, reference, eager, result, spread)
            if asked.covered:
                asked.float64, asked.float64_reason = float64_difference(build, seed, compile)
            return _row(
                model, seed, name, found, is_ill_conditioned(asked), "; ".join([asked.told(), *asked.beyond[:1]])
            )
    except Exception as error:
        return _row(model, seed, name, [], False, describe(error)) | {"right": None, "as_eager": None}


def _step(problem: Problem, seed: int, compile: Compile) -> numbers.StepValues:
    torch.compiler.reset()
    torch_api.dynamo_clear_counters()
    function = compile(problem.step_function())
    problem.module.zero_grad()
    seed_everything(seed)
    loss = problem.loss_of(function(*problem.args, **problem.kwargs))
    loss.backward()
    if not torch_api.dynamo_graphs():
        raise RuntimeError("no graph was compiled")
    return numbers.step_values(problem, loss)


def _right(found: list[numbers.Comparison]) -> bool:
    return all(c.right for c in found)


def _row(
    model: str, seed: int, run: str, found: list[numbers.Comparison], ill_conditioned: bool, told: str
) -> dict[str, Any]:
    return {
        "model": model,
        "seed": seed,
        "run": run,
        "right": _right(found),
        "as_eager": all(c.passed for c in found),
        "times": times_eager(found),
        "ill_conditioned": ill_conditioned,
        "told": told,
    }


def failures(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each run that was called wrong, or did not run."""
    for row in rows:
        if not row["right"] and not row["ill_conditioned"]:
            yield f"{row['model']}, seed {row['seed']}, {row['run']}: {row['told']}"
