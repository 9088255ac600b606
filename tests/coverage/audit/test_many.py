# SPDX-License-Identifier: Apache-2.0
"""An audit of many models: a record a model whatever happens to its process, kept by resume, merged from machines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.audit import auditor, many
from relaxgrad.coverage.audit.auditor import AuditOptions, audit_model, verdict
from relaxgrad.coverage.audit.record import AuditRecord, Cause, Verdict
from relaxgrad.coverage.harness.process import Outcome, State
from relaxgrad.coverage.harness.train_record import NO_REFERENCE
from relaxgrad.coverage.sweeps.records import Records

MODELS = '''
    """Factories: one that trains, and one for each way to end a process."""
    import os, time
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, what):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.what = what

        def forward(self, x):
            if self.what == "raises":
                raise ValueError("a fault of the model")
            return self.linear(x).square().mean()

    def _made(what):
        return Net(what), (torch.randn(2, 4),)

    def trains():
        return _made("")

    def raises():
        return _made("raises")

    def aborts():
        os.abort()

    def hangs():
        while True:
            time.sleep(0.1)

    def eats():
        held = []
        while True:
            held.append(torch.ones(1 << 22))
            time.sleep(0.02)
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "models.py"
    path.write_text(textwrap.dedent(MODELS))
    return path


def test_each_end_of_a_process_is_a_row_of_its_own_kind(file: Path) -> None:
    options = AuditOptions(steps=2, upstream=False, dry=True, time_limit=90.0)
    assert audit_model(f"{file}:trains", options).verdict is Verdict.DRY
    raised = audit_model(f"{file}:raises", options)
    assert (raised.cause, "a fault of the model" in raised.reason) == (Cause.MODEL, True)
    aborted = audit_model(f"{file}:aborts", options)
    assert (aborted.cause, "SIGABRT" in aborted.reason) == (Cause.CRASH, True)
    assert "models.py" in aborted.worker_output
    short = AuditOptions(upstream=False, dry=True, time_limit=12.0)
    assert audit_model(f"{file}:hangs", short).cause is Cause.TIMEOUT
    small = AuditOptions(upstream=False, dry=True, time_limit=90.0, memory_limit=1 << 30)
    eaten = audit_model(f"{file}:eats", small)
    assert (eaten.cause, eaten.reason) == (Cause.MEMORY, "the worker used more than 1.0 GiB of memory")


def planted(monkeypatch: pytest.MonkeyPatch, seen: list[str]) -> None:
    def audit(model: str, options: AuditOptions, listen: Any = None) -> AuditRecord:
        seen.append(model)
        if model == "stop":
            raise KeyboardInterrupt
        return AuditRecord(model, Verdict.YES)

    monkeypatch.setattr(many, "audit_model", audit)
    monkeypatch.setattr(many, "audit_installation", lambda _: [])


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_keeps_what_is_done_and_resume_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    seen: list[str] = []
    planted(monkeypatch, seen)
    path = tmp_path / many.FILE
    with pytest.raises(KeyboardInterrupt):
        many.audit_models(["a", "b", "stop"], AuditOptions(), path, jobs=jobs)
    kept = {r["model"] for r in many.read_audit(path)[1]}
    assert kept <= {"a", "b"}
    seen.clear()
    with pytest.raises(UserError, match="--resume"):
        many.audit_models(["a"], AuditOptions(), path)
    many.audit_models(["a", "b", "c"], AuditOptions(), path, resume=True, jobs=jobs)
    assert set(seen) == {"a", "b", "c"} - kept
    assert {r["model"] for r in many.read_audit(path)[1]} == {"a", "b", "c"}
    with pytest.raises(UserError, match="other settings"):
        many.audit_models(["a"], AuditOptions(seed=1), path, resume=True)


def test_a_killed_run_resumes_to_the_same_rows(tmp_path: Path, file: Path) -> None:
    path = tmp_path / many.FILE
    names = [f"{file}:trains", f"{file}:raises", f"{file}:hangs"]
    code = f"""
        from pathlib import Path
        from relaxgrad.coverage.audit.many import audit_models
        from relaxgrad.coverage.audit.auditor import AuditOptions
        audit_models({names!r}, AuditOptions(dry=True, upstream=False, time_limit=1000.0), Path({str(path)!r}))
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], start_new_session=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (path.exists() and len(path.read_text().splitlines()) == 3):
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with path.open("a") as half:  # what a kill in the middle of a write leaves
        half.write('{"model": "cut off')
    before = [r["model"] for r in many.read_audit(path)[1]]
    assert before == names[:2]
    options = AuditOptions(dry=True, upstream=False, time_limit=10.0)
    many.audit_models(names, options, path, resume=True)
    rows = many.read_audit(path)[1]
    assert [r["model"] for r in rows] == names
    assert [r["cause"] for r in rows] == ["", "the model itself", "time limit"]


def write(path: Path, head: dict[str, Any], *models: str) -> Path:
    records = Records(path, head, False)
    for model in models:
        records.add(AuditRecord(model, Verdict.YES, reason=path.name).to_json())
    records.close()
    return path


def test_audits_of_several_machines_merge_where_they_are_comparable(tmp_path: Path) -> None:
    head = many.head_of(AuditOptions())
    first, second = write(tmp_path / "1.jsonl", head, "a", "b"), write(tmp_path / "2.jsonl", head, "b", "c")
    _, merged = many.merge([first, second])
    assert [(r["model"], r["reason"]) for r in merged] == [("a", "1.jsonl"), ("b", "2.jsonl"), ("c", "2.jsonl")]
    other = write(tmp_path / "3.jsonl", {**head, "versions": {"torch": "2.12"}}, "d")
    with pytest.raises(UserError, match="differ in their versions"):
        many.merge([first, other])
    sweep = tmp_path / "4.jsonl"
    sweep.write_text(json.dumps({"schema": 1, "sweep": "opinfo"}) + "\n")
    with pytest.raises(UserError, match="no audit of models"):
        many.merge([sweep])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda head, record: head.update(audit_schema=3), "has an audit of schema 3; this relaxgrad reads schema 2"),
        (lambda head, record: head.pop("audit_schema"), "has an audit of schema None"),
        (lambda head, record: head.pop("versions"), "its first line lacks versions"),
        (lambda head, record: record.pop("findings"), ":2 is no record of a model: it lacks findings"),
        (lambda head, record: record.clear(), ":2 is no record of a model: it lacks cause"),
    ],
    ids=["newer", "none", "head", "key", "empty"],
)
def test_what_is_no_audit_of_this_schema_is_refused_in_one_line(change: Any, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "1.jsonl", many.head_of(AuditOptions()), "a")
    head, record = map(json.loads, path.read_text().splitlines())
    change(head, record)
    path.write_text(f"{json.dumps(head)}\n{json.dumps(record)}\n")
    with pytest.raises(UserError, match=message) as error:
        many.merge([path])
    assert "\n" not in str(error.value)


def test_the_verdict_follows_from_how_it_trained() -> None:
    trained = {"status": "trained", "calls": {"native": 3, "fallback": 0}, "graph_breaks": {}, "reason": ""}
    assert verdict(trained) == (Verdict.YES, Cause.NONE, "")
    assert verdict(trained | {"calls": {"fallback": 1}})[0] is Verdict.WITH_FALLBACKS
    assert verdict(trained | {"graph_breaks": {"print": 1}})[0] is Verdict.WITH_FALLBACKS
    wrong = trained | {"status": "wrong", "reason": "gradient of w"}
    assert verdict(wrong) == (Verdict.NO, Cause.WRONG, "gradient of w")
    failed = trained | {"status": "failed", "graph_details": [], "losses_compiled": []}
    assert verdict(failed)[1] is Cause.NOT_CAPTURED
    assert verdict(failed | {"reason": f"{NO_REFERENCE}: RuntimeError"})[1] is Cause.NO_REFERENCE
    assert verdict(failed | {"graph_details": [{"runs": 0}]})[1] is Cause.ERROR
    assert verdict(failed | {"graph_details": [{"runs": 1}], "losses_compiled": [1.0]})[1] is Cause.REFUSED


def test_a_model_that_trained_trains_whatever_ends_its_audit() -> None:
    partial = json.loads(json.dumps(AuditRecord("net", Verdict.YES, parameters=3).to_json()))
    record = auditor._record("net", Outcome(State.TIMEOUT, message="no result within 600 s", seconds=600.0), partial)
    assert (record.verdict, record.cause, record.parameters) == (Verdict.YES, Cause.NONE, 3)
    assert record.reason == "its audit ended after training: no result within 600 s"
    record = auditor._record("net", Outcome(State.TIMEOUT, message="no result within 600 s", seconds=600.0), {})
    assert (record.verdict, record.cause) == (Verdict.NO, Cause.TIMEOUT)


def test_the_findings_of_the_installation_head_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "audit_model", lambda model, *_: AuditRecord(model, Verdict.YES))
    path = tmp_path / many.FILE
    many.audit_models(["a"], AuditOptions(), path)
    head, _ = many.read_audit(path)
    assert [f["blocker"] for f in head["installation"]] == ["API stability", "maintenance"]
    assert all(f["level"] == "worked around" for f in head["installation"])
    many.audit_models(["b"], AuditOptions(), path, resume=True)
    assert many.read_audit(path)[0] == head


def test_zoo_models_have_their_group() -> None:
    assert auditor._place_in_zoo("gpt2") == ("text", ["decoder"])
    assert auditor._place_in_zoo("file.py:f") == ("", [])
