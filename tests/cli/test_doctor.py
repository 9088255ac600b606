# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad doctor`: what it says is what is there, and each thing that breaks training on llvm is exit code 1."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from relaxgrad.bridge import targets, torch_api
from relaxgrad.bridge.devices.cpu.host import host_cpu
from relaxgrad.bridge.devices.cpu.target import llvm_target
from relaxgrad.bridge.devices.cuda.target import cuda_target
from relaxgrad.cli import doctor
from relaxgrad.cli.main import main


def good(name: str = "step") -> doctor.Check:
    return doctor.Check(name, True, "fine")


def bad(name: str = "step") -> doctor.Check:
    return doctor.Check(name, False, "broken", "something")


def diagnosis(**changes: object) -> doctor.Diagnosis:
    """A machine on which everything works, save for `changes`."""
    parts: dict[str, object] = {
        "versions": {"python": "3.11", "relaxgrad": "0", "torch": "2.13.0", "tvm": "0.27.0", "g++": None, "nvcc": None},
        "cpu": doctor.Cpu("A CPU", "znver4", 2, ("avx2",)),
        "targets": [doctor.TargetReport("llvm", good(), good()), doctor.TargetReport("cuda", good(), bad())],
        "torch_api": [good("aot_autograd")],
        "training_step": good("training step"),
    }
    return doctor.Diagnosis(**(parts | changes))  # type: ignore[arg-type]  # the keys are the fields


def test_the_whole_command_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["problems"] == []
    assert report["ok"] is True
    assert code == 0
    assert report["schema"] == doctor.SCHEMA
    assert report.keys() == {"schema", "ok", "versions", "cpu", "targets", "torch_api", "training_step", "problems"}
    assert report["versions"]["torch"] == torch.__version__
    llvm = report["targets"][0]
    assert llvm["name"] == "llvm"
    assert llvm["compile"]["ok"]
    assert llvm["run"]["ok"]
    assert len(report["torch_api"]) >= 5
    assert all(check["used_for"] for check in report["torch_api"])
    assert report["training_step"]["ok"]


def test_the_tables_name_everything(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = diagnosis(torch_api=[bad("aot[autograd]")])
    found.problems = doctor._problems(found)
    monkeypatch.setattr(doctor, "diagnose", lambda progress: found)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    for text in ("2.13.0", "znver4", "avx2", "llvm", "cuda", "aot[autograd]", "training step", "does not work here"):
        assert text in out


def test_a_missing_gpu_or_compiler_is_no_problem() -> None:
    assert doctor._problems(diagnosis()) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"versions": {"torch": "2.13.0", "tvm": None}}, "tvm is not installed"),
        ({"targets": [doctor.TargetReport("llvm", bad("compile"), good("run"))]}, "target llvm, compile: broken"),
        ({"targets": [doctor.TargetReport("llvm", good("compile"), bad("run"))]}, "target llvm, run: broken"),
        ({"torch_api": [good("a"), bad("partitioner")]}, "torch's partitioner (something): broken"),
        ({"training_step": bad("training step")}, "training step: broken"),
    ],
)
def test_what_breaks_the_road_is_a_problem(changes: dict[str, object], said: str) -> None:
    assert doctor._problems(diagnosis(**changes)) == [said]


def test_a_probe_of_torch_that_fails_is_shown_with_its_use(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = torch_api.Probe("some_name", "the partition", False, "ImportError: gone")
    monkeypatch.setattr(torch_api, "probe_all", lambda: [probe])
    assert doctor.examine_torch_api() == [doctor.Check("some_name", False, "ImportError: gone", "the partition")]


def test_no_probe_at_all_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_api, "probe_all", list)
    (check,) = doctor.examine_torch_api()
    assert not check.ok


def test_a_broken_tvm_is_reported_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise ImportError("libtvm_compiler.so: cannot open shared object file")

    for name in ("tvm", "tvm.target", "tvm_ffi"):
        monkeypatch.setitem(sys.modules, name, Broken(name))
    for cached in (targets.can_compile, host_cpu, llvm_target, cuda_target):
        cached.cache_clear()
    try:
        report = doctor.examine_target("llvm")
        assert not report.compile.ok
        assert "libtvm_compiler.so" in report.compile.detail
        assert not report.run.ok
        assert doctor.examine_cpu().llvm_name == "unknown"
    finally:
        for cached in (targets.can_compile, host_cpu, llvm_target, cuda_target):
            cached.cache_clear()


def test_wrong_gradients_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled is twice the model."""
    honest = torch.compile

    def twice(function: Callable[..., torch.Tensor], **options: Any) -> Callable[..., torch.Tensor]:
        return honest(lambda *args: 2.0 * function(*args), **options)

    monkeypatch.setattr(torch, "compile", twice)
    training_step = doctor.examine_training_step()
    assert not training_step.ok
    assert "gradients differ" in training_step.detail


def test_a_step_that_never_reached_tvm_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients are right, since eager computed them."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    training_step = doctor.examine_training_step()
    assert not training_step.ok
    assert "there ran: none" in training_step.detail


def test_a_graph_that_falls_back_as_a_whole_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is compiled and its gradients are right, and yet TVM has no part in it."""

    def refuse(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("relaxgrad.bridge.compile.pipeline.compile_module", refuse)
    training_step = doctor.examine_training_step()
    assert not training_step.ok
    assert "the forward graph fell back to ATen" in training_step.detail
    assert "planted" in training_step.detail


def test_a_tool_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._tool_version("nvcc") is None
    tool = tmp_path / "nvcc"
    tool.write_text("#!/bin/sh\necho header\necho 'tools, release 13.0'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert doctor._tool_version("nvcc") == "tools, release 13.0"
    tool.write_text("#!/bin/sh\nexit 3\n")
    assert doctor._tool_version("nvcc") is None
