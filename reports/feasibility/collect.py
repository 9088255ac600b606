# SPDX-License-Identifier: Apache-2.0
"""Audits and benchmarks models, and gathers what was found: the work behind `relaxgrad report`."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relaxgrad.benchmarks.machine import this_machine
from relaxgrad.benchmarks.record import SCHEMA as BENCH_SCHEMA
from relaxgrad.benchmarks.record import Settings
from relaxgrad.benchmarks.run import bench_model, protocol_in_words
from relaxgrad.coverage.audit.many import FILE, read_audit
from relaxgrad.coverage.harness.records import plain, versions, write_json

from .answers import answer_of, findings_of, model_of
from .schema import Report

BENCH_FILE = "bench.json"
Say = Callable[[str], None]


def bench_models(
    models: Sequence[str], settings: Settings, folder: Path, time_limit: float, say: Say
) -> list[dict[str, Any]]:
    """Times each model and keeps the records in `folder`/bench.json, as soon as each is there."""
    records: list[dict[str, Any]] = []
    head = {"machine": this_machine().to_json(), "settings": settings.to_json(), "versions": versions()}
    with tempfile.TemporaryDirectory(prefix="relaxgrad-probes-") as shared:
        for number, name in enumerate(models, 1):
            say(f"{number} of {len(models)}: {name}")
            record = bench_model(
                name,
                settings,
                time_limit,
                start_up=False,
                say=lambda text: say(f"{number} of {len(models)}: {name}: {text}"),  # noqa: B023 - called at once
                probes=Path(shared) / "inductor",
            )
            records.append(record.to_json())
            write_json(folder / BENCH_FILE, {"schema": BENCH_SCHEMA, "command": "bench", **head, "models": records})
    return records


def gather(
    folder: Path,
    wanted: Sequence[str],
    bench: Sequence[dict[str, Any]],
    settings: Settings | None,
    commands: list[str],
) -> Report:
    """The report of the models `wanted` in the audit of `folder`, and of the benchmark records, which may be none."""
    head, audited = read_audit(folder / FILE)
    timed = {record["model"]: record for record in bench}
    models = [model_of(record, timed.get(record["model"])) for record in audited if record["model"] in wanted]
    machine = plain(this_machine().to_json())
    protocol = "" if settings is None or not bench else protocol_in_words(settings)
    where = f"{protocol}, on " if protocol else ""
    answer, sentence = answer_of(models, f"{where}{machine['cpu']}, {machine['cores']} cores")
    return Report(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        answer=answer,
        sentence=sentence,
        commands=commands,
        protocol=protocol,
        versions=head["versions"],
        machine=machine,
        installation=findings_of(head.get("installation", [])),
        models=models,
    )
