# SPDX-License-Identifier: Apache-2.0
"""The zoo: the promised models, built anew the same for the same seed, training with dropout on.

Every check of a model runs for a spread of them in the quick tests, and for all of them with `-m slow`.
"""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness.problem import Problem, tensors_in
from relaxgrad.coverage.zoo import CORE, OPTIONAL, TIMED, ZOO, Group, select
from tests.expected_skips import need_package

CORE_NAMES = [
    *("seed-example", "mlp", "cnn-bn", "lstm", "gru", "transformer-encoder", "gpt2", "bert"),
    *("llama", "t5", "vit", "resnet", "convnext", "distilbert", "mistral"),
]
NAMES = select("all")

# One or two of a group, quick to build.
SPREAD = [
    *("seed-example", "mlp", "gpt2", "bart", "resnet", "detr", "diffusion-unet", "wavenet", "clip", "lstm", "dlrm"),
    *("gat", "tabnet", "sac"),
]

# Parameters that the architecture has and its loss does not read, so that eager gives them no gradient.
UNUSED = {
    "layoutlm": r"layoutlm\.pooler\.",
    "fnet": r"fnet\.pooler\.",
    "big-bird": r"bert\.pooler\.",
    "xlnet": r"transformer\.mask_emb|.*\.(r_s_bias|seg_embed)",  # of its two-stream pretraining, and of segments
    "llava": r"model\.vision_tower\.post_layernorm\.",  # the patches are read before it
    "dpt": r"dpt\.layernorm\.|neck\.fusion_stage\.layers\.0\.residual_layer1\.",  # the first fusion has nothing to add
}

# Models in which Dynamo breaks the graph: what is in its reasons.
CAPTURE = "Unsupported context manager"  # transformers collects the layers' outputs with hooks
WAVE = "setattr() on Tensor.requires_grad"  # the input of the feature extractor, so that it can be checkpointed
BROKEN = {
    "electra": "Dynamic shape operator",  # the loss is of the tokens that the mask selects
    "longformer": "Data dependent operator",  # where the global tokens are
    "big-bird": "Data dependent operator",  # random blocks drawn by numpy
    "mixtral": CAPTURE,
    "switch-transformers": "Dynamic shape operator",  # the tokens of each expert
    "segformer": CAPTURE,
    "dpt": CAPTURE,
    "wav2vec2": WAVE,
    "hubert": WAVE,
    "wavlm": WAVE,
    "deep-speech": "Dynamic shape operator",  # the CTC loss
    "vilt": "Data dependent operator",  # which patches are not padding
    "llava": CAPTURE,
}


def each_model(names: list[str]) -> Any:
    """Parametrizes `name`: quick for the spread, slow for the rest."""
    return pytest.mark.parametrize(
        "name", [n if n in SPREAD else pytest.param(n, marks=pytest.mark.slow) for n in names]
    )


def step(problem: Problem, seed: int) -> Tensor:
    """Forward and backward in eager; the loss."""
    torch.manual_seed(seed)
    problem.module.zero_grad()
    loss = problem.loss(problem.module(*problem.args, **problem.kwargs))
    loss.backward()
    return loss.detach()


# ---------------------------------------------------------------------------------------------------------------------
# The table


def test_the_promised_size_and_groups() -> None:
    assert len(NAMES) >= 64
    assert {ZOO[name].group for name in NAMES} == set(Group) - {*OPTIONAL, *TIMED}
    assert {ZOO[name].group for name in SPREAD} == set(Group) - {*OPTIONAL, *TIMED}
    for tag in ("encoder", "decoder", "encoder-decoder", "mixture-of-experts", "state-space", "long-context"):
        assert select(tag), tag


def test_core_names() -> None:
    assert list(CORE) == CORE_NAMES
    assert set(CORE) <= set(NAMES)


def test_listing_names_imports_no_torch() -> None:
    code = "import sys; from relaxgrad.coverage.zoo import ZOO; assert len(ZOO) >= 64; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_names_are_short_and_lower_case() -> None:
    assert [name for name in ZOO if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name)] == []
    assert all(name == entry.name for name, entry in ZOO.items())


def test_benchmark_names_are_a_suite_and_a_model() -> None:
    named = {name: entry.benchmark for name, entry in ZOO.items() if entry.benchmark}
    assert len(named) >= 40
    pattern = r"(huggingface|timm|torchbench)/[A-Za-z0-9][\w.\-]*(/[\w.\-]+)?"
    assert {name: benchmark for name, benchmark in named.items() if not re.fullmatch(pattern, benchmark)} == {}


def test_tags_are_no_groups() -> None:
    names = {"all", "core", *Group}
    assert {name: entry.tags for name, entry in ZOO.items() if not entry.tags or names & set(entry.tags)} == {}


def test_select() -> None:
    assert select("core") == CORE_NAMES
    assert select("state-space") == ["mamba", "mamba2", "rwkv"]
    assert select("timm") == [name for name in ZOO if name.startswith("timm-")]
    assert not {ZOO[name].group for name in select("all")} & {*OPTIONAL, *TIMED}
    assert len(select("perf")) >= 12
    assert all(name.startswith("perf-") for name in select("perf"))
    with pytest.raises(UserError, match=r"no part of the zoo is called 'visoin'; groups: all, core, tiny, .*; tags: "):
        select("visoin")


@pytest.mark.parametrize("name", ["torchvision-resnet18", "timm-mixer"])
def test_an_absent_optional_package_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = name.partition("-")[0]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.models", None)
    with pytest.raises(
        UserError, match=rf"zoo model {name} needs {package}.*pip install relaxgrad\[vision\]"
    ) as raised:
        ZOO[name].build(0)
    assert "\n" not in str(raised.value)


# ---------------------------------------------------------------------------------------------------------------------
# The models


@each_model(NAMES)
def test_trains_in_eager(name: str) -> None:
    check_trains_in_eager(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ZOO if ZOO[name].group in OPTIONAL])
def test_optional_model_trains_in_eager(name: str) -> None:
    need_package(ZOO[name].group.value)
    check_trains_in_eager(name)


# Quick to build and to run.
TIMED_SPREAD = ("perf-mlp", "perf-dlrm")


@pytest.mark.parametrize(
    "name", [n if n in TIMED_SPREAD else pytest.param(n, marks=pytest.mark.slow) for n in select("perf")]
)
def test_timed_model_trains_in_eager(name: str) -> None:
    check_trains_in_eager(name)


def check_trains_in_eager(name: str) -> None:
    problem = ZOO[name].build(0)
    assert all(module.training for module in problem.module.modules())
    buffers = copy.deepcopy(problem.module.state_dict())  # with its metadata, which MNASNet wants
    first = step(problem, 1)
    assert first.ndim == 0
    assert bool(torch.isfinite(first))
    assert bool(first != 0)
    gradients = {key: p.grad for key, p in problem.named_parameters().items()}
    unused = [key for key in gradients if re.match(UNUSED.get(name, "$"), key)]
    assert [key for key, grad in gradients.items() if grad is None] == unused
    bad = {k: g for k, g in gradients.items() if g is not None and not (g.any() and g.isfinite().all())}
    assert list(bad) == []
    problem.module.load_state_dict(buffers)
    assert torch.equal(step(problem, 1), first)
    problem.module.load_state_dict(buffers)
    assert torch.equal(step(problem, 2), first) == (not ZOO[name].dropout)


@each_model(NAMES)
def test_is_a_function_of_the_seed(name: str) -> None:
    def values(seed: int) -> list[Tensor]:
        problem = ZOO[name].build(seed)
        return [*problem.module.state_dict().values(), *tensors_in([list(problem.args), problem.kwargs])]

    def same(a: Tensor, b: Tensor) -> bool:
        return a.shape == b.shape and torch.equal(a, b)

    first, again, other = values(3), values(3), values(4)
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert not all(same(a, b) for a, b in zip(first, other, strict=True))


@each_model(NAMES)
def test_the_loss_is_compiled_with_the_model(name: str) -> None:
    problem = ZOO[name].build(0)
    output = problem.step_function()(*problem.args, **problem.kwargs)
    assert (output.ndim == 0) == (name != "seed-example")


def trace(name: str, fullgraph: bool) -> tuple[int, str]:
    """Two forward passes with a backend that compiles nothing: graphs made, and Dynamo's reasons for its breaks."""
    problem = ZOO[name].build(0)
    graphs = 0

    def backend(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal graphs
        graphs += 1
        return gm

    torch.compiler.reset()
    torch_api.dynamo_clear_counters()
    with torch_api.dynamo_config_patch(allow_rnn=True):
        compiled = torch.compile(problem.step_function(), backend=backend, fullgraph=fullgraph)
        for _ in range(2):
            compiled(*problem.args, **problem.kwargs)
    return graphs, "\n".join(torch_api.dynamo_counters().get("graph_break", {}))


@each_model([name for name in NAMES if name not in BROKEN])
def test_dynamo_traces_it_whole_and_once(name: str) -> None:
    assert trace(name, fullgraph=True)[0] == 1


@each_model(list(BROKEN))
def test_dynamo_breaks_it(name: str) -> None:
    assert BROKEN[name] in trace(name, fullgraph=False)[1]


def test_seed_example_leaves_the_loss_outside() -> None:
    problem = ZOO["seed-example"].build(0)
    output = problem.step_function()(*problem.args)
    w, b = problem.module.get_parameter("w"), problem.module.get_parameter("b")
    assert torch.equal(output, torch.relu(problem.args[0] @ w + b))
    assert output.shape == (4, 4)
