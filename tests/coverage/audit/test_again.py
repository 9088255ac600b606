# SPDX-License-Identifier: Apache-2.0
"""One blocker of an audit measured anew: its finding is another, the rest of the record is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.audit import again
from relaxgrad.coverage.audit.auditor import AuditOptions
from relaxgrad.coverage.audit.many import FILE, head_of, read_audit
from relaxgrad.coverage.audit.record import AuditRecord, Verdict
from relaxgrad.coverage.blockers.finding import Blocker, Finding, Level
from relaxgrad.coverage.sweeps.records import Records


def audited(folder: Path, *models: str) -> Path:
    file = folder / FILE
    records = Records(file, json.loads(json.dumps(head_of(AuditOptions()))), resume=False)
    for model in models:
        record = AuditRecord(model, Verdict.YES, parameters=20)
        finding = Finding(Blocker.IN_PLACE, Level.BLOCKS, "a false alarm", {"layout_copies_a_run": 0.5, "old": 1})
        record.findings = {Blocker.IN_PLACE.value: finding.to_json(), "operators": {"level": "clear"}}
        records.add(record.to_json())
    records.close()
    return file


def test_a_finding_is_replaced_and_the_rest_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = audited(tmp_path, "seed-example", "mlp")
    assert again.main([str(tmp_path), Blocker.IN_PLACE.value, "seed-example"]) == 0
    assert "seed-example: blocks became clear: 0 tensors written in place" in capsys.readouterr().out
    _, (first, second) = read_audit(file)
    finding: dict[str, Any] = first["findings"][Blocker.IN_PLACE.value]
    assert finding["level"] == "clear"
    assert finding["numbers"]["layout_copies_a_run"] == 0.5
    assert finding["numbers"]["optimizer"]["right"]
    assert (first["parameters"], first["findings"]["operators"]) == (20, {"level": "clear"})
    assert second["findings"][Blocker.IN_PLACE.value]["headline"] == "a false alarm"


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no record of gpt2"):
        again.measure_again(audited(tmp_path, "mlp"), Blocker.IN_PLACE, ["gpt2"], 1)


def test_a_model_that_fails_is_left_as_it_was(tmp_path: Path) -> None:
    file = audited(tmp_path, "no-such-model")
    (line,) = again.measure_again(file, Blocker.IN_PLACE, [], 1)
    assert line.startswith("no-such-model: left as it was: ")
    assert read_audit(file)[1][0]["findings"][Blocker.IN_PLACE.value]["headline"] == "a false alarm"
