# SPDX-License-Identifier: Apache-2.0
"""MODEL names: every way in which a name or a factory can be wrong gives one line that says how."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness.models import check_name, describe, load_problem

FILE = """\
import torch
from dataclasses import dataclass
from torch import nn
from helper_of_the_factory import WIDTH


@dataclass
class Settings:
    width: int = WIDTH


def good():
    return nn.Linear(WIDTH, 2), torch.randn(5, WIDTH)

def good_kwargs(width=WIDTH):
    return nn.Linear(width, 2).eval(), {"input": torch.randn(5, width)}, lambda y: y.abs().sum()

def good_tuple():
    return nn.Bilinear(3, 3, 2), (torch.randn(5, 3), torch.randn(5, 3))

def raises():
    x = torch.randn(2, 3)
    return nn.Linear(4, 4)(x), x

def exits():
    raise SystemExit(1)

def needs(width, depth):
    return nn.Linear(width, depth), torch.randn(1, width)

def number():
    return 42

def only_module():
    return nn.Linear(2, 2)

def four():
    return nn.Linear(2, 2), torch.randn(2, 2), None, None

def class_not_instance():
    return nn.Linear, torch.randn(2, 2)

def not_a_module():
    return (lambda x: x), torch.randn(2, 2)

def not_a_loss():
    return nn.Linear(2, 2), torch.randn(2, 2), "mse"

def nothing_to_train():
    return nn.ReLU(), torch.randn(2, 2)

def no_inputs():
    return nn.Linear(2, 2), None

def empty_inputs():
    return nn.Linear(2, 2), ()

def numpy_input():
    return nn.Linear(2, 2), (torch.randn(2, 2).numpy(),)

def object_input():
    return nn.Linear(2, 2), {"input": object()}

def wrong_key():
    return nn.Linear(2, 2), {1: torch.randn(2, 2)}

def meta_device():
    return nn.Linear(2, 2, device="meta"), torch.randn(2, 2)

value = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "helper_of_the_factory.py").write_text("WIDTH = 3\n")
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def message(model: str) -> str:
    with pytest.raises(UserError) as caught:
        load_problem(model)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_factory_in_a_file(file: Path) -> None:
    problem = load_problem(f"{file}:good", seed=1)
    assert isinstance(problem.module, nn.Linear)
    assert problem.args[0].shape == (5, 3)
    again = load_problem(f"{file}:good", seed=1)
    assert torch.equal(problem.args[0], again.args[0])
    assert problem.loss(torch.tensor([1.0, 3.0])) == 5.0  # no loss given: the mean square of the output


def test_keyword_inputs_a_loss_and_train_mode(file: Path) -> None:
    problem = load_problem(f"{file}:good_kwargs")
    assert problem.module.training
    assert list(problem.kwargs) == ["input"]
    assert problem.loss(torch.tensor([1.0, -3.0])) == 4.0


def test_a_tuple_of_inputs(file: Path) -> None:
    assert len(load_problem(f"{file}:good_tuple").args) == 2


def test_a_factory_in_a_module(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    assert isinstance(load_problem("mine:good").module, nn.Linear)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("raises", r"raised RuntimeError: mat1 and mat2 .* at \S+mine\.py:23 \(return nn\.Linear\(4, 4\)\(x\), x\)"),
        ("exits", r"raised SystemExit: 1 at \S+mine\.py:26"),
        ("needs", r"needs arguments \(width, depth\)"),
        ("number", r"mine\.py:\d+: the factory returns a value of type int; return \(module, inputs\)"),
        ("only_module", r"a module without inputs"),
        ("four", r"returned 4 values"),
        ("class_not_instance", r"the class Linear; return an instance, as Linear\(\)"),
        ("not_a_module", r"a value of type function, not a torch\.nn\.Module"),
        ("not_a_loss", r"the loss is a value of type str"),
        ("nothing_to_train", r"no trainable parameter"),
        ("no_inputs", r"the inputs are None"),
        ("empty_inputs", r"no tensor among the inputs"),
        ("numpy_input", r"input 0 is a value of type ndarray, not a tensor; use torch\.from_numpy"),
        ("object_input", r"input 'input' is a value of type object, not a tensor"),
        ("wrong_key", r"input names must be text"),
        ("meta_device", r"a tensor is on meta"),
        ("value", r"value is a value of type int, not a function"),
        ("goood", r"no function goood in \S+; did you mean good\?"),
        ("zzz", r"no function zzz in \S+; functions there: good, good_kwargs"),
    ],
)
def test_what_is_wrong_with_a_factory(file: Path, function: str, says: str) -> None:
    assert re.search(says, message(f"{file}:{function}"))


def test_a_file_that_raises_or_does_not_parse(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import torch\n\nx = 1 / 0\ndef f(): ...\n")
    assert re.search(r"importing it raised ZeroDivisionError: .* at \S+bad\.py:3", message(f"{tmp_path}/bad.py:f"))
    (tmp_path / "worse.py").write_text("def f(:\n")
    assert re.search(r"worse\.py:1 is not Python: invalid syntax", message(f"{tmp_path}/worse.py:f"))
    (tmp_path / "lacks.py").write_text("import not_there_at_all\ndef f(): ...\n")
    assert "lacks.py:1: no module not_there_at_all" in message(f"{tmp_path}/lacks.py:f")
    (tmp_path / "hides.py").write_text("if True:\n    import not_there_at_all\ndef f(): ...\n")
    assert "ModuleNotFoundError" in message(f"{tmp_path}/hides.py:f")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("gtp2", r"unknown model 'gtp2'; did you mean gpt2 or \w+ or \w+\? `relaxgrad audit --zoo all --list`"),
        ("zzz", r"unknown model 'zzz'; `relaxgrad audit --zoo all --list` prints all names"),
        ("nowhere/x.py:f", r"no file nowhere/x\.py"),
        ("x.py", r"name the factory function"),
        (":f", r"not a model"),
        ("a.b:", r"not a model"),
        ("", r"unknown model"),
    ],
)
def test_names_that_can_be_told_wrong_at_once(model: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        check_name(model)


def test_a_file_without_a_function_name_is_told_its_functions(file: Path) -> None:
    with pytest.raises(UserError, match=r"as \S+mine\.py:good$"):
        check_name(str(file))
    with pytest.raises(UserError, match=r"did you mean mine\.py\?"):
        check_name(f"{file.parent}/mime.py:good")


def test_no_such_module_against_a_module_that_lacks_another(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no module not_there" in message("not_there.at_all:f")
    (file.parent / "imports_wrong.py").write_text("import also_not_there\n")
    monkeypatch.syspath_prepend(str(file.parent))
    assert "importing it raised ModuleNotFoundError" in message("imports_wrong:f")


def test_describe_without_message_or_traceback() -> None:
    assert describe(ValueError()) == "ValueError"
    assert describe(ValueError("a\nb")) == "ValueError: a"


def test_a_missing_function_is_told_without_running_the_file(tmp_path: Path) -> None:
    file = tmp_path / "harmless.py"
    file.write_text("raise SystemExit('it ran')\ndef make(): ...\n")
    with pytest.raises(UserError, match=r"no function mkae in \S+; did you mean make\?"):
        check_name(f"{file}:mkae")
    check_name(f"{file}:make")


@pytest.mark.parametrize(
    "text",
    [
        "from other import make", "from other import a as make", "from other import *", "make = a", "if a:\n  make = 1",
        "for make in a: ...", "class make: ...", "globals()['ma' 'ke'] = 1", "def __getattr__(name): ...",
        "make = 1\nmake = a", "def make():\n  return 1\nmake = a",
        "import sys\nsys.path.append('x')\nimport x_y\nmake = a",
        "try:\n  import not_there\nexcept ImportError:\n  make = a",
    ],
)  # fmt: skip
def test_a_name_that_a_file_may_bind_is_left_to_running_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(text)
    (tmp_path / "other.py").write_text("")
    check_name(f"{tmp_path / 'model.py'}:make")


def test_what_a_users_file_shows_is_told_before_torch_is_imported(tmp_path: Path) -> None:
    """Every command that takes a model, in a process of its own: exit code 2, the line, and no torch."""
    file = tmp_path / "mine.py"
    script = (
        "import sys\nfrom relaxgrad.cli.main import main\n"
        "for command in ('train', 'capture', 'explain', 'audit', 'bench', 'report'):\n"
        "    assert main([command, sys.argv[1]]) == 2\nassert 'torch' not in sys.modules\n"
    )
    for text, says in (
        ("def make(:\n", "mine.py:1 is not Python: invalid syntax"),
        ("import os\nimport not_there_at_all\ndef make(): ...\n", "mine.py:2: no module not_there_at_all"),
        ("\nmake = 3\n", "mine.py:2: make is a value of type int, not a function"),
        ("def make():\n    return 3\n", "mine.py:2: the factory returns a value of type int"),
        ("def mkae(): ...\n", "did you mean mkae?"),
    ):
        file.write_text(text)
        ran = subprocess.run([sys.executable, "-c", script, f"{file}:make"], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert [says in line for line in ran.stderr.splitlines()] == [True] * 6, ran.stderr
