# SPDX-License-Identifier: Apache-2.0
"""The sweep engine: a crash or a hang costs one sample, records survive an interrupt, shards and jobs part the work."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from relaxgrad.bridge.errors import RelaxgradError, UserError
from relaxgrad.coverage.sweeps.driver import Plan, run_sweep
from relaxgrad.coverage.sweeps.records import Records, finished_samples, read_records
from relaxgrad.coverage.sweeps.worker import spread

SWEEP = """\
import os, time
from relaxgrad.coverage.sweeps.check import Checked, Status
from relaxgrad.coverage.sweeps.call import Call
from relaxgrad.coverage.sweeps.worker import BaseSweep, Sample

def crash():
    os.abort()

def hang():
    time.sleep(1000)

def right(number):
    return Sample(Call(len), {"number": number})

class Sweep(BaseSweep):
    def warm_up(self):
        pass

    def check(self, call):
        return Checked(Status.PASS)

    def entries(self):
        return ["good", "bad", "last"]

    def samples(self, entry):
        if entry == "bad":
            if self.settings.get("broken"):
                raise ValueError("no samples here")
            return {0: lambda: right(1), 1: crash, 2: lambda: right(2), 3: hang, 4: lambda: right(3)}
        return {n: (lambda n=n: right(n)) for n in range(1, 5)}
"""
NAME = "sweep_of_the_test"


@pytest.fixture(autouse=True)
def sweep_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{NAME}.py").write_text(SWEEP)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))


def run(path: Path, plan: Plan, jobs: int = 1, resume: bool = False, listen: Any = None) -> list[dict[str, Any]]:
    records = Records(path, plan.head(), resume)
    try:
        run_sweep(plan, records, jobs, listen)
    finally:
        records.close()
    return read_records(path)[1]


def keys(records: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((r["entry"], r["sample"]) for r in records)


ALL = sorted([("bad", n) for n in range(5)] + [(entry, n) for entry in ("good", "last") for n in range(1, 5)])


def test_a_crash_and_a_hang_cost_one_sample_each(tmp_path: Path) -> None:
    events: list[str] = []
    plan = Plan(NAME, ["good", "bad", "last"], {"dynamic": False}, limit=2.0)
    records = run(tmp_path / "r.jsonl", plan, listen=lambda event: events.append(event["event"]))
    assert keys(records) == ALL
    status = {(r["entry"], r["sample"]): r["status"] for r in records}
    assert status.pop(("bad", 1)) == "crash"
    assert status.pop(("bad", 3)) == "timeout"
    assert set(status.values()) == {"pass"}
    by_key = {(r["entry"], r["sample"]): r for r in records}
    assert "SIGABRT in crash at" in by_key["bad", 1]["detail"]
    assert by_key["bad", 3]["detail"] == "no result within 2 s"
    assert by_key["good", 2]["number"] == 2
    assert events.count("record") == len(ALL)
    assert events.count("entry") >= 3


def test_jobs_and_shards_part_the_samples(tmp_path: Path) -> None:
    seen = []
    for part in (0, 1):
        plan = Plan(NAME, ["good", "last"], {}, shard=(part, 2))
        records = run(tmp_path / f"{part}.jsonl", plan, jobs=2 if part else 1)
        assert 0 < len(records) < 8
        seen += keys(records)
    assert sorted(seen) == [key for key in ALL if key[0] != "bad"]


def test_resume_runs_only_what_is_missing_and_drops_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    plan = Plan(NAME, ["good", "last"], {})
    run(path, plan)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4]) + lines[4][:25])
    assert len(finished_samples(path)) == 3
    with pytest.raises(UserError, match="--resume"):
        Records(path, plan.head(), resume=False)
    with pytest.raises(UserError, match="other settings"):
        Records(path, Plan(NAME, ["good"], {"samples": 1}).head(), resume=True)
    begun: list[Any] = []
    records = run(path, plan, resume=True, listen=lambda e: begun.append(e) if e["event"] == "begin" else None)
    assert len(begun) == 5
    assert keys(records) == [key for key in ALL if key[0] != "bad"]


def test_an_entry_without_samples_is_one_that_eager_cannot_run(tmp_path: Path) -> None:
    (record,) = run(tmp_path / "r.jsonl", Plan(NAME, ["bad"], {"broken": True}))
    assert (record["status"], record["sample"]) == ("eager", 0)
    assert "no samples here" in record["detail"]


def test_a_worker_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RelaxgradError, match="no_such_sweep"):
        run(tmp_path / "r.jsonl", Plan("no_such_sweep", ["x"], {}))


def test_records_are_json_and_of_one_schema(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    records = Records(path, {"sweep": "x", "settings": {}}, False)
    records.add({"entry": "e", "sample": 0, "error": float("nan")})
    records.close()
    assert read_records(path)[1] == [{"entry": "e", "sample": 0, "error": None}]
    path.write_text('{"schema": 99}\n')
    with pytest.raises(UserError, match="schema"):
        read_records(path)
    path.write_text("no json\n")
    with pytest.raises(UserError, match="not JSON"):
        Records(path, {}, resume=True)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_keeps_what_is_done(tmp_path: Path, jobs: int) -> None:
    path = tmp_path / "r.jsonl"
    code = f"""
        from pathlib import Path
        from relaxgrad.coverage.sweeps.driver import Plan, run_sweep
        from relaxgrad.coverage.sweeps.records import Records
        plan = Plan({NAME!r}, ["good", "bad", "last"], {{}}, limit=1000.0)
        run_sweep(plan, Records(Path({str(path)!r}), plan.head(), False), {jobs})
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120

    def under_way() -> bool:  # between a worker that was killed and the next one there is the command alone
        return path.exists() and '"sample":2' in path.read_text() and len(workers(tmp_path)) >= 2

    while time.monotonic() < deadline and not under_way():
        time.sleep(0.2)
    assert len(workers(tmp_path)) >= 2  # the command and a worker, or the check below would prove nothing
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"KeyboardInterrupt" in said
    assert read_records(path)[1]
    assert workers(tmp_path) == []


def workers(folder: Path) -> list[int]:
    """Processes that were started with `folder` on their Python path and are still there."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(folder) in process.environ().get("PYTHONPATH", "") and process.pid != os.getpid():
                found.append(process.pid)
    return found


def test_a_limit_takes_samples_from_everywhere() -> None:
    assert spread(10, None) == list(range(10))
    assert spread(10, 3) == [1, 5, 8]
    assert spread(2, 5) == [0, 1]
    assert json.loads(json.dumps(spread(1, 1))) == [0]
