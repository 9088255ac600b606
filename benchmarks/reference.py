# SPDX-License-Identifier: Apache-2.0
"""The reference worker: eager's first step and its float64 reference, and every candidate's first step against them.

The rule is that of `relaxgrad train` (coverage/harness/numbers.py); where a first step is not right,
`conditioning` asks what eager itself does there (coverage/harness/conditioning.py). The parameters after an optimizer
step are validated against AdamW on the candidate's own gradients: AdamW divides a gradient by its size, so where a
gradient is noise the update of eager is noise as well, and tells nothing of the optimizer. A compiled optimizer gets
its step count as a float32 tensor, and `1 - 0.999 ** step` loses four digits there; so the rounding that is allowed is
that of AdamW with float32 steps, and not that of eager's, whose steps are Python numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness import numbers
from relaxgrad.coverage.harness.conditioning import (
    EagerSpread,
    conditioning,
    float64_difference,
    is_ill_conditioned,
    zeros_of_aot,
)
from relaxgrad.coverage.harness.models import describe, load_problem
from relaxgrad.coverage.harness.problem import Problem, seed_everything
from relaxgrad.coverage.harness.train_record import Validation
from relaxgrad.coverage.harness.trainee import LEARNING_RATE
from relaxgrad.coverage.harness.training import validate, validate_buffers

from .candidates import Candidate
from .session import load_like, start_of

Emit = Callable[[dict[str, Any]], None]
Named = Mapping[str, Tensor | None]


def session(arguments: dict[str, Any], emit: Emit) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Arguments: model, seed, and `start`: the file to leave the problem's parameters, buffers and inputs in.

    The session answers {"do": "parameters"} with their number and the inputs' shapes, {"do": "validate", "values":
    file} with a Validation of loss, gradients, buffers and parameters, and {"do": "conditioning", "values": file,
    "candidate": name} with {"ill_conditioned": bool, "told": both figures in a line}.
    Raises UserError for a model that does not run in eager.
    """
    validator = _Validator(arguments["model"], arguments["seed"], Path(arguments["start"]))
    commands = {
        "parameters": validator.parameters,
        "validate": validator.validate,
        "conditioning": validator.conditioning,
    }
    return lambda command: commands[command["do"]](command)


class _Validator:
    def __init__(self, model: str, seed: int, start: Path):
        problem = load_problem(model, seed)
        self.model, self.seed, self.start = model, seed, start
        self.count, self.inputs = problem.parameter_count(), problem.input_shapes()
        self.state = {name: p.detach().clone() for name, p in problem.named_parameters().items()}
        self.buffers = {name: b.detach().clone() for name, b in problem.module.named_buffers()}
        torch.save(start_of(problem), start)
        self.eager = _eager_step(model, problem, seed)
        self.reference = numbers.float64_step(load_like(model, seed, start), seed)

    def parameters(self, command: dict[str, Any]) -> dict[str, Any]:
        return {"parameters": self.count, "inputs": self.inputs}

    def validate(self, command: dict[str, Any]) -> dict[str, Any]:
        found = torch.load(command["values"])
        eager, reference = self.eager, self.reference
        validated = {
            "loss": validate({"loss": reference.loss}, {"loss": eager.loss}, {"loss": found["loss"]}),
            "gradients": validate(reference.gradients, eager.gradients, found["gradients"], self._zeros(found)),
        }
        validated["buffers"] = validate_buffers(self.buffers, reference.buffers, eager.buffers, found["buffers"])
        if "parameters" in found:
            validated["parameters"] = self._validate_update(found["gradients"], found["parameters"])
        return {name: vars(verdict) for name, verdict in validated.items()}

    def conditioning(self, command: dict[str, Any]) -> dict[str, Any]:
        values = torch.load(command["values"])
        result = numbers.StepValues(values["loss"], values["gradients"], values["buffers"])
        spread = EagerSpread(self._build, self.seed, self.reference, self.eager, steps=1)
        found = conditioning(self.seed, self.reference, self.eager, result, spread)
        if found.covered:
            candidate = Candidate(command["candidate"], draw_as_eager=True)
            candidate.load()
            with candidate.recording():
                found.float64, found.float64_reason = float64_difference(
                    self._build, self.seed, candidate.compile, candidate.did_nothing
                )
        return {"ill_conditioned": is_ill_conditioned(found), "told": found.told()}

    def _build(self) -> Problem:
        return load_like(self.model, self.seed, self.start)

    def _zeros(self, found: dict[str, Any]) -> frozenset[str]:
        """See `zeros_of_aot`; asked only where the candidate has a gradient and eager has none."""
        if all(found["gradients"].get(n) is None for n, g in self.eager.gradients.items() if g is None):
            return frozenset()
        return zeros_of_aot(self._build, self.seed)

    def _validate_update(self, gradients: Named, result: Named) -> Validation:
        reference, rounded = (_adamw(self.state, gradients, dtype) for dtype in (torch.float64, torch.float32))
        told = [n for n, p in rounded.items() if p.numel() and bool(p.any())]  # zeros against zeros tell nothing
        return validate(
            {n: reference[n] for n in told}, {n: rounded[n] for n in told}, {n: result.get(n) for n in told}
        )


def _eager_step(model: str, problem: Problem, seed: int) -> numbers.StepValues:
    seed_everything(seed)
    try:
        loss = problem.loss(problem.module(*problem.args, **problem.kwargs))
        loss.backward()
    except Exception as error:
        raise UserError(f"{model}: a step in eager raised {describe(error)}") from error
    return numbers.step_values(problem, loss)


def _adamw(start: Mapping[str, Tensor], gradients: Named, dtype: torch.dtype) -> dict[str, Tensor]:
    """The parameters after the first step of AdamW (Loshchilov and Hutter 2019, algorithm 2) with torch's defaults.

    All numbers of the update, the step count among them, are in `dtype` (float32 or float64).
    """
    defaults = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=LEARNING_RATE).defaults
    rate, (beta1, beta2), epsilon, decay = (defaults[key] for key in ("lr", "betas", "eps", "weight_decay"))
    step = torch.ones((), dtype=dtype)
    found = {}
    for name, value in start.items():
        gradient, parameter = gradients.get(name), value.to(dtype)
        if gradient is None:
            found[name] = parameter
            continue
        gradient = gradient.to(dtype)
        mean = (1 - beta1) * gradient / (1 - beta1**step)
        square = (1 - beta2) * gradient * gradient / (1 - beta2**step)
        found[name] = parameter * (1 - rate * decay) - rate * mean / (square.sqrt() + epsilon)
    return found
