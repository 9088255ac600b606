# SPDX-License-Identifier: Apache-2.0
"""An audit of many models: each in processes of its own, each record written as soon as it is there.

The file is JSON lines: first what was asked for and what was measured with, then a record a model. It only grows, a
line at a time, so that whatever ends the run (Ctrl-C, SIGKILL, a power cut) leaves every finished model; `resume` goes
on from there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from relaxgrad.bridge.errors import UserError

from ..harness.process import stop_workers
from ..harness.records import ONNX_PACKAGES, versions
from ..sweeps.records import Records, read_records
from .auditor import AuditOptions, audit_installation, audit_model
from .record import SCHEMA, AuditRecord

FILE = "audit.jsonl"
_KEYS = {field.name for field in fields(AuditRecord)}

Listen = Callable[[str, dict[str, Any]], None]


def head_of(options: AuditOptions) -> dict[str, Any]:
    """The first line of the records."""
    settings = {k: v for k, v in asdict(options).items() if k not in ("time_limit", "memory_limit")}
    used = versions(ONNX_PACKAGES if options.onnx else ())
    return {"sweep": "models", "settings": settings, "audit_schema": SCHEMA, "versions": used}


def audit_models(
    models: Sequence[str],
    options: AuditOptions,
    path: Path,
    resume: bool = False,
    jobs: int = 1,
    listen: Listen | None = None,
    done: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Audits each model that has no record in `path` yet, `jobs` at a time, and adds its record.

    `listen` gets a model's name and its worker's events, `done` each record; from several threads when jobs > 1. Raises
    UserError for a file that is there without `resume`, or holds another kind of run. An interrupt kills the workers
    and is passed on.
    """
    head = head_of(options)
    if not options.dry and not path.exists():
        head["installation"] = audit_installation(options.time_limit)
    records = Records(path, head, resume)
    finished = {record["model"] for record in read_audit(path)[1]}
    interrupted = threading.Event()

    def one(model: str) -> None:
        if interrupted.is_set():
            return
        say = None if listen is None else lambda event: listen(model, event)
        record = audit_model(model, options, say)
        if interrupted.is_set():  # its worker was killed: that is no finding
            return
        records.add(record.to_json())
        if done is not None:
            done(record.to_json())

    waiting = [model for model in models if model not in finished]
    try:
        if jobs == 1:  # in this thread, which gets the KeyboardInterrupt
            for model in waiting:
                one(model)
            return
        with ThreadPoolExecutor(jobs) as pool:
            try:
                list(pool.map(one, waiting))
            except BaseException:
                interrupted.set()
                stop_workers()
                raise
    finally:
        records.close()


def read_audit(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Head and records of an audit's file. Raises UserError for a file that is not one."""
    head, records = read_records(path)
    if head.get("sweep") != "models":
        raise UserError(f"{path} has no audit of models; `relaxgrad audit MODEL... -o DIR` makes one")
    if head.get("audit_schema") != SCHEMA:
        raise UserError(
            f"{path} has an audit of schema {head.get('audit_schema')!r}; this relaxgrad reads schema {SCHEMA}, which "
            "`relaxgrad audit MODEL... -o DIR` writes"
        )
    if lacking := {"settings", "versions"} - head.keys():
        raise UserError(f"{path}: its first line lacks {', '.join(sorted(lacking))}: it was edited or cut")
    for number, record in enumerate(records, 2):
        lacking = _KEYS - record.keys() if isinstance(record, dict) else _KEYS
        if lacking:
            raise UserError(f"{path}:{number} is no record of a model: it lacks {', '.join(sorted(lacking))}")
    return head, records


def merge(paths: Sequence[Path]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One audit from several machines': for a model that more than one has, the record of the last file counts.

    Raises UserError where they were made with other settings or other versions: they would not be comparable.
    """
    heads, merged = [], dict[str, dict[str, Any]]()
    for path in paths:
        head, records = read_audit(path)
        heads.append(head)
        merged |= {record["model"]: record for record in records}
    for key in ("settings", "versions"):
        values = {json.dumps(head[key], sort_keys=True) for head in heads}
        if len(values) > 1:
            raise UserError(
                f"these audits differ in their {key} and cannot be merged: {' against '.join(sorted(values))}; audit "
                "again with the same, or keep them apart"
            )
    return heads[0], list(merged.values())
