# SPDX-License-Identifier: Apache-2.0
"""One candidate of a training comparison: its own copy of the problem, its optimizer and its random state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import numbers
from .problem import Problem, copy_tensors, random_state, seed_everything, set_random_state
from .timing import Candidate

LEARNING_RATE = 1e-3


class Trainee:
    """Takes AdamW steps on one batch; `function`, which a compiled one may replace, is what a step runs."""

    def __init__(self, problem: Problem, seed: int):
        self.problem = problem
        self.function: Callable[..., Any] = problem.step_function()
        self.optimizer = torch.optim.AdamW(problem.named_parameters().values(), lr=LEARNING_RATE)
        self.losses: list[float] = []
        self.buffers_at_start = {name: b.detach().clone() for name, b in problem.module.named_buffers()}
        self.first: numbers.StepValues
        self.first_of_step = True
        seed_everything(seed)
        self.random_state = random_state()

    def candidate(self) -> Candidate:
        return Candidate(self.step, lambda: set_random_state(self.random_state), self.finish)

    def step(self) -> Tensor:
        """zero_grad, forward, loss, backward, optimizer; returns the 0-d loss."""
        self.optimizer.zero_grad()
        output = self.function(*self.problem.args, **self.problem.kwargs)
        loss = self.problem.loss_of(output)
        loss.backward()
        if self.first_of_step:  # before the optimizer changes the parameters; a copy, once, in a step that is not timed
            self.first_of_step = False
            self.first = numbers.step_values(self.problem, loss)
        self.optimizer.step()
        return loss

    def finish(self, loss: Tensor) -> None:
        self.losses.append(float(loss.detach()))
        self.random_state = random_state()


def problem_like(problem: Problem, other: Problem) -> Problem:
    """`problem` (built anew) with the parameters, buffers and inputs of `other`, for factories that are not repeatable.

    Building anew instead of deepcopy: a loss that closes over its module must see its own module.
    """
    problem.module.load_state_dict(other.module.state_dict())
    problem.args, problem.kwargs = copy_tensors((other.args, other.kwargs))
    return problem
