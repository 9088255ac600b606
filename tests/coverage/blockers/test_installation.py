# SPDX-License-Identifier: Apache-2.0
"""Blockers 3 and 5: the installation's own findings."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.torch_probes import Probe
from relaxgrad.coverage.blockers import api_stability, maintenance
from relaxgrad.coverage.blockers.finding import Level
from relaxgrad.coverage.upstream.runner import STORED, scripts


def test_every_private_name_is_probed() -> None:
    finding = api_stability.measure()
    assert finding.level is Level.WORKED_AROUND
    assert finding.numbers["private_names"] == len(torch_api.NAMES)
    assert finding.numbers["probes_failed"] == []


def test_a_name_that_is_gone_blocks(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    gone = Probe("torch._x", "y", False, "AttributeError: no x")
    monkeypatch.setattr(torch_api, "probe_all", lambda: [gone])
    finding = api_stability.measure()
    assert finding.level is Level.BLOCKS
    assert finding.headline.startswith("1 of 1 private names")
    assert finding.evidence[0].what == "torch._x, for y: AttributeError: no x"


def test_only_code_is_counted_as_code() -> None:
    source = '''
    """Module."""

    # a comment
    def f():
        """Two
        lines."""
        return """not
        a docstring"""
    '''
    assert maintenance.code_lines(textwrap.dedent(source)) == 3


def test_the_bridge_is_measured_and_known_bugs_are_named(tmp_path: Path) -> None:
    shown = {"name": "dropout", "title": "dropout is the identity", "outcome": "reproduced"}
    gone = {"name": "x", "title": "x", "outcome": "gone"}
    stored = tmp_path / "found.json"
    stored.write_text(json.dumps({"known_bugs": [shown, gone], "versions": {}}))
    finding = maintenance.measure(stored)
    assert finding.numbers["bridge"]["converters"] > 300
    assert finding.numbers["bridge"]["lines"] > 3000
    assert finding.numbers["known_bugs"] == {"tried": 2, "reproduced": 1}
    assert [e.what for e in finding.evidence] == ["dropout is the identity"]
    assert "known_bugs" not in maintenance.measure(tmp_path / "none.json").numbers


def test_the_stored_outcomes_are_those_of_the_scripts() -> None:
    found = json.loads(STORED.read_text())
    assert [bug["name"] for bug in found["known_bugs"]] == [script.stem for script in scripts()]
    assert {bug["outcome"] for bug in found["known_bugs"]} == {"reproduced"}
    assert len(found["unnamed_overloads"]) > 20
