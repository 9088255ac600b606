# SPDX-License-Identifier: Apache-2.0
"""Targets by name: what each name becomes, and the line that a wrong or absent one gets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relaxgrad.bridge import targets as target
from relaxgrad.bridge.devices.cpu import host
from relaxgrad.bridge.devices.cpu import target as cpu_target
from relaxgrad.bridge.devices.cuda import target as cuda_target
from relaxgrad.bridge.errors import UserError
from tests.expected_skips import Lacking, skip


@pytest.fixture(autouse=True)
def _fresh_caches() -> Iterator[None]:
    """What a test pretends about the machine must not stay cached for the next."""
    yield
    for cached in (target.can_compile, host.host_cpu, cpu_target.llvm_target, cuda_target.cuda_target):
        cached.cache_clear()


def pretend_cpu(monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    host.host_cpu.cache_clear()
    cpu_target.llvm_target.cache_clear()
    for module in (host, cpu_target):
        monkeypatch.setattr(module, "cpuinfo_flags", lambda: frozenset(flags.split()))


def test_llvm_is_this_machine() -> None:
    found = target.resolve_target("llvm")
    assert found.kind.name == "llvm"
    assert found.attrs["mcpu"] == host.host_cpu().name
    assert found.attrs["num-cores"] == host.cores() >= 1


def test_cuda_is_compiled_without_a_gpu_for_the_architecture_asked_for() -> None:
    found = target.resolve_target("cuda:sm_80", to_run=False)
    assert found.attrs["arch"] == "sm_80"
    assert found.host.kind.name == "llvm"


@pytest.mark.parametrize("name", ["", "vulkan", "LLVM", "llvm:", ":sm_90", "cuda:"])
def test_an_unknown_name_lists_what_there_is(name: str) -> None:
    with pytest.raises(UserError, match=r"is unknown; write KIND or KIND:MODEL.*llvm \(compile and run\)"):
        target.resolve_target(name)


def test_a_cpu_that_llvm_does_not_know_is_named() -> None:
    with pytest.raises(UserError, match="CPU named 'z80'"):
        target.resolve_target("llvm:z80")


@pytest.mark.parametrize("name", ["cuda:90", "cuda:sm90", "cuda:sm_90x"])
@pytest.mark.parametrize("to_run", [True, False])
def test_a_cuda_architecture_has_a_form(name: str, to_run: bool) -> None:
    with pytest.raises(UserError, match="an architecture such as sm_80"):
        target.resolve_target(name, to_run=to_run)


def test_cuda_without_a_gpu_can_be_compiled_but_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"can be compiled but not run here.*no usable NVIDIA GPU") as caught:
        target.resolve_target("cuda")
    assert "\n" not in str(caught.value)
    assert target.resolve_target("cuda", to_run=False).attrs["arch"] == cuda_target.DEFAULT_CUDA_ARCH


def test_a_tvm_without_the_code_generator_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm_ffi

    target.can_compile.cache_clear()
    monkeypatch.setattr(tvm_ffi, "get_global_func", lambda name, allow_missing: None)
    with pytest.raises(UserError, match="built without a cuda code generator"):
        target.resolve_target("cuda", to_run=False)


def need_cpuinfo() -> None:
    if host.cpuinfo_flags() is None:
        skip(Lacking.CPUINFO, "not there")


def test_features_that_the_machine_hides_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    need_cpuinfo()
    shown = host.host_cpu().features
    assert shown, "this CPU has none of the vector features known to relaxgrad"
    hidden = shown[-1]
    pretend_cpu(monkeypatch, " ".join(host._CPUINFO_FLAGS[f] for f in shown[:-1]))
    assert host.host_cpu().hidden == (hidden,)
    assert list(target.resolve_target("llvm").attrs["mattr"]) == [f"-{hidden}"]
    assert target.probe_compile("llvm").ok


def test_a_cpu_with_features_that_this_one_lacks_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    need_cpuinfo()
    pretend_cpu(monkeypatch, "avx avx2 fma")
    with pytest.raises(UserError, match=r"can be compiled but not run here.*lacks.*avx512f"):
        target.resolve_target("llvm:skylake-avx512")
    probe = target.probe_compile("llvm:skylake-avx512")
    assert probe.ok
    assert "not run" in probe.detail


def test_usable_features_are_the_ones_both_sides_know() -> None:
    assert host.usable_features({"avx2", "fma", "branchfusion"}, frozenset({"fma"})) == (("fma",), ("avx2",))
    assert host.usable_features({"avx2"}, None) == (("avx2",), ())


def test_a_probe_that_fails_says_why() -> None:
    probe = target.probe_compile("nonsense")
    assert not probe.ok
    assert "UserError" in probe.detail


def test_wrong_values_fail_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    monkeypatch.setattr(tvm, "compile", lambda module, target: {"main": lambda x, y: y.copy_(x)})
    probe = target.probe_compile("llvm")
    assert not probe.ok
    assert "wrong values" in probe.detail
