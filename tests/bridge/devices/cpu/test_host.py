# SPDX-License-Identifier: Apache-2.0
"""What is known of this machine's processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxgrad.bridge.device import host as host_device
from relaxgrad.bridge.devices import cpu
from relaxgrad.bridge.devices.cpu import host


def test_the_cpu_is_told_by_what_it_can_do(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor: 0\nmodel name: A\nflags: avx2\ncpu MHz: 1000\n\nprocessor: 1\nmodel name: B\n")
    assert host.fingerprint(str(file))[1:] == ["model name:A", "flags:avx2"]
    assert len(host.fingerprint(str(tmp_path / "none"))) == 2


def test_code_depends_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    before = host_device().fingerprint()
    monkeypatch.setattr(cpu, "cores", lambda: 97)
    assert host_device().fingerprint() != before
