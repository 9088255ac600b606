"""The zoo: the promised models, built anew the same for the same seed, training with dropout on, traced whole."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from relaxgrad.bridge import torch_api
from relaxgrad.coverage.problem import Problem, tensors_in
from relaxgrad.coverage.zoo import ZOO

NAMES = [
    *("seed-example", "mlp", "cnn-bn", "lstm", "gru", "transformer-encoder", "gpt2", "bert"),
    *("llama", "t5", "vit", "resnet", "convnext", "distilbert", "mistral"),
]


def step(problem: Problem, seed: int) -> Tensor:
    """Forward and backward in eager; the loss."""
    torch.manual_seed(seed)
    problem.module.zero_grad()
    loss = problem.loss(problem.module(*problem.args, **problem.kwargs))
    loss.backward()
    return loss.detach()


def test_names() -> None:
    assert list(ZOO) == NAMES


def test_listing_names_imports_no_torch() -> None:
    code = "import sys; from relaxgrad.coverage.zoo import ZOO; assert len(ZOO) == 15; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", NAMES)
def test_trains_in_eager(name: str) -> None:
    problem = ZOO[name].build(0)
    assert all(module.training for module in problem.module.modules())
    buffers = {key: value.clone() for key, value in problem.module.state_dict().items()}
    first = step(problem, 1)
    assert first.ndim == 0
    assert bool(torch.isfinite(first))
    gradients = {key: p.grad for key, p in problem.named_parameters().items()}
    assert [key for key, grad in gradients.items() if grad is None or not bool(grad.any())] == []
    problem.module.load_state_dict(buffers)
    assert torch.equal(step(problem, 1), first)
    problem.module.load_state_dict(buffers)
    assert torch.equal(step(problem, 2), first) == (not ZOO[name].dropout)


@pytest.mark.parametrize("name", NAMES)
def test_is_a_function_of_the_seed(name: str) -> None:
    def values(seed: int) -> list[Tensor]:
        problem = ZOO[name].build(seed)
        return [*problem.module.state_dict().values(), *tensors_in([list(problem.args), problem.kwargs])]

    first, again, other = values(3), values(3), values(4)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_dynamo_traces_it_whole_and_once(name: str) -> None:
    problem = ZOO[name].build(0)
    graphs = 0

    def backend(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal graphs
        graphs += 1
        return gm

    torch_api.dynamo_reset()
    with torch_api.dynamo_config_patch(allow_rnn=True):
        compiled = torch.compile(problem.step_function(), backend=backend, fullgraph=True)
        for _ in range(2):
            compiled(*problem.args, **problem.kwargs)
    assert graphs == 1


def test_seed_example_leaves_the_loss_outside() -> None:
    problem = ZOO["seed-example"].build(0)
    output = problem.step_function()(*problem.args)
    w, b = problem.module.get_parameter("w"), problem.module.get_parameter("b")
    assert torch.equal(output, torch.relu(problem.args[0] @ w + b))
    assert output.shape == (4, 4)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "seed-example"])
def test_the_others_compile_the_loss(name: str) -> None:
    problem = ZOO[name].build(0)
    assert problem.step_function()(*problem.args, **problem.kwargs).ndim == 0
