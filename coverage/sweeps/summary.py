# SPDX-License-Identifier: Apache-2.0
"""What the records of a sweep add up to: per entry, per op, and in one line. Plain dicts, ready for JSON."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from relaxgrad.bridge.kinds import Kind

from ..verification import Verification
from .check import GOOD

SCHEMA = 2  # of the summary; raised when a key changes its meaning or goes away
UPSTREAM = Path(__file__).parent / "data" / "upstream_importer.json"
_RAN_BY_TVM = (Kind.NATIVE, Kind.LIBRARY)


def kind_of(record: dict[str, Any]) -> Kind:
    """How one sample ran: by the least of its nodes. What eager ran in the end, for want of a graph, fell back."""
    calls = record.get("calls", {})
    if record["status"] == "eager":
        return Kind.UNSUPPORTED
    if not record.get("graphs") or calls.get(Kind.FALLBACK):
        return Kind.FALLBACK
    for kind in (Kind.NATIVE, Kind.LIBRARY):
        if calls.get(kind):
            return kind
    return Kind.METADATA


def all_fell_back(record: dict[str, Any]) -> bool:
    """Whether TVM and the libraries chosen on purpose ran nothing of a sample that had something to run."""
    return kind_of(record) is Kind.FALLBACK and not any(record.get("calls", {}).get(kind) for kind in _RAN_BY_TVM)


def summarise(head: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals, entries and ops of a sweep."""
    by_entry: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_entry.setdefault(record["entry"], []).append(record)
    entries = {name: _entry(by_entry[name]) for name in head["entries"] if name in by_entry}
    seconds = [r["seconds"] for r in records if "seconds" in r]
    summary: dict[str, Any] = {
        "schema": SCHEMA,
        "sweep": head["sweep"],
        "settings": head["settings"],
        "shard": head.get("shard", [0, 1]),
        "versions": head.get("versions", {}),
        "samples": dict(Counter(r["status"] for r in records)),
        "sample_kinds": dict(Counter(kind_of(r).value for r in records)),
        "seconds": {"total": round(sum(seconds), 1), "median": round(median(seconds), 3) if seconds else None},
        "entry_totals": _entry_totals(head, entries),
        "entries": entries,
        "ops": _ops(records),
    }
    if head["sweep"] == "op-logs":
        summary["recorded_calls"] = _recorded_calls(records)
    settings = head["settings"]
    if head["sweep"] == "opinfo" and settings.get("dtype") == "float32" and not settings.get("dynamic"):
        summary["upstream_importer"] = _beside_upstream(entries)
    return summary


def _entry(records: list[dict[str, Any]]) -> dict[str, Any]:
    statuses = Counter(r["status"] for r in records)
    calls: Counter[str] = Counter()
    for record in records:
        calls.update(record.get("calls", {}))
    ran = [r for r in records if r["status"] != "eager"]
    failed = [r for r in ran if r["status"] not in GOOD]
    entry: dict[str, Any] = {
        "samples": len(records),
        "status": dict(statuses),
        "passed": bool(ran) and not failed,
        "kinds": dict(Counter(kind_of(r).value for r in ran)),
        "calls": dict(calls),
        "all_fell_back": bool(ran) and all(all_fell_back(r) for r in ran),
        "breaks": sum(r.get("capture") == "breaks" for r in ran),
        "backward": sum(bool(r.get("backward")) for r in ran),
        "symbolic": sum(bool(r.get("symbolic")) for r in ran),
        "two_sizes": sum(r.get("sizes", 1) > 1 for r in ran),
        "outputs": _outputs(ran),
        "reasons": sorted({reason for r in ran for reason in r.get("reasons", ())})[:20],
    }
    if failed:
        entry["failures"] = [
            {"sample": r["sample"], "status": r["status"], "detail": r.get("detail", "")} for r in failed[:10]
        ]
    unrunnable = [r for r in records if r["status"] == "eager"]
    if unrunnable:
        entry["eager"] = unrunnable[0].get("detail", "")
    return entry


def _outputs(records: list[dict[str, Any]]) -> dict[str, str]:
    """Verification status of each output and gradient: wrong if it ever was, verified if it ever was proved."""
    seen: dict[str, set[str]] = {}
    for record in records:
        for name, status in record.get("outputs", {}).items():
            seen.setdefault(name.removeprefix("second size: "), set()).add(status)
    order = (Verification.WRONG, Verification.VERIFIED, Verification.UNTESTED)
    return {name: next(t.value for t in order if t in verifications) for name, verifications in sorted(seen.items())}


def _entry_totals(head: dict[str, Any], entries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    passed = [e for e in entries.values() if e["passed"]]
    return {
        "entries": len(head["entries"]),
        "checked": len(entries),
        "passed": len(passed),
        "passed_all_fell_back": sum(e["all_fell_back"] for e in passed),
        "native_or_library": sum(
            set(e["kinds"]) <= {"native", "library"} and bool(e["kinds"]) for e in entries.values()
        ),
        "metadata": sum(set(e["kinds"]) == {"metadata"} for e in entries.values()),
        "partly_fell_back": sum("fallback" in e["kinds"] and not e["all_fell_back"] for e in entries.values()),
        "all_fell_back": sum(e["all_fell_back"] for e in entries.values()),
        "verified": sum(e["passed"] and "verified" in e["outputs"].values() for e in entries.values()),
        "failed": [name for name, e in entries.items() if not e["passed"] and set(e["status"]) != {"eager"}],
        "eager_cannot": [name for name, e in entries.items() if set(e["status"]) == {"eager"}],
        "with_breaks": [name for name, e in entries.items() if e["breaks"]],
    }


def _ops(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every overload in the graphs of the sweep: nodes by kind, and the samples it was part of."""
    ops: dict[str, dict[str, Any]] = {}
    for record in records:
        for name, kinds in record.get("ops", {}).items():
            op = ops.setdefault(name, {"kinds": Counter(), "samples": 0, "passed": 0, "symbolic": 0})
            op["kinds"].update(kinds)
            op["samples"] += 1
            op["passed"] += record["status"] == "pass"
            op["symbolic"] += bool(record.get("symbolic"))
    return {name: {**op, "kinds": dict(op["kinds"])} for name, op in sorted(ops.items())}


def _recorded_calls(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The records weighted by how often the models made each call."""
    statuses: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for record in records:
        count = record.get("count", 0)
        statuses[record["status"]] += count
        kinds[kind_of(record).value] += count
    return {
        "calls": sum(statuses.values()),
        "status": dict(statuses),
        "kinds": dict(kinds),
        "scaled_records": sum("scaled" in r for r in records),
        "made_in_float32": sum(r.get("made_in") == "float32" for r in records),
    }


def _beside_upstream(entries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """TVM's own importer on the same entries (forward in float32, two samples each, measured once) beside ours."""
    upstream = json.loads(UPSTREAM.read_text())
    theirs = {name: upstream["entries"][name] for name in entries if name in upstream["entries"]}
    table: Counter[str] = Counter()
    for name, verdict in theirs.items():
        table[f"{verdict}, here {'passed' if entries[name]['passed'] else 'failed'}"] += 1
    facts = {key: upstream[key] for key in ("importer", "apache-tvm", "passes", "samples_per_entry")}
    return {**facts, "entries": len(theirs), "verdicts": dict(Counter(theirs.values())), "beside": dict(table)}


# ---------------------------------------------------------------------------------------------------------------------
# Markdown


def markdown(summary: dict[str, Any]) -> str:
    """The summary as a page: totals, what failed and why, every entry."""
    totals, samples = summary["entry_totals"], summary["samples"]
    settings = ", ".join(f"{key} {value}" for key, value in summary["settings"].items() if value is not None)
    lines = [f"# Sweep: {summary['sweep']}", "", f"Settings: {settings or 'none'}.", "", *headline(summary), ""]
    if totals["failed"]:
        lines += ["## Failed", "", "| entry | sample | status | detail |", "|---|---|---|---|"]
        for name in totals["failed"]:
            for failure in summary["entries"][name].get("failures", ()):
                detail = _cell(failure["detail"])
                lines.append(f"| {name} | {failure['sample']} | {failure['status']} | {detail} |")
        lines.append("")
    if totals["eager_cannot"]:
        lines += ["## What eager itself cannot run here", ""]
        lines += [f"- {name}: {_cell(summary['entries'][name]['eager'])}" for name in totals["eager_cannot"]] + [""]
    lines += ["## Entries", "", "| entry | samples | passed | vacuous | native | library | fallback | metadata | ran |"]
    lines += ["|---|--:|--:|--:|--:|--:|--:|--:|---|"]
    for name, entry in summary["entries"].items():
        calls, status = entry["calls"], entry["status"]
        kinds = " | ".join(str(calls.get(kind, 0)) for kind in ("native", "library", "fallback", "metadata"))
        ran = "all fell back" if entry["all_fell_back"] else "+".join(sorted(entry["kinds"])) or "eager cannot"
        lines.append(
            f"| {name} | {entry['samples']} | {status.get('pass', 0)} | {status.get('vacuous', 0)} | {kinds} | {ran} |"
        )
    assert sum(samples.values()) == sum(e["samples"] for e in summary["entries"].values())
    return "\n".join(lines) + "\n"


def headline(summary: dict[str, Any]) -> list[str]:
    """The totals in a few sentences."""
    totals, samples = summary["entry_totals"], summary["samples"]
    count = sum(samples.values())
    said = ", ".join(f"{n:,} {status}" for status, n in sorted(samples.items(), key=lambda pair: -pair[1]))
    lines = [
        f"{count:,} samples of {totals['checked']} of {totals['entries']} entries: {said or 'none'}.",
        f"{totals['passed']} entries pass every sample; of these {totals['passed_all_fell_back']} only because all of "
        f"them fell back to ATen or eager.",
        f"Entries by how they ran: {totals['native_or_library']} native or library, {totals['metadata']} metadata, "
        f"{totals['partly_fell_back']} partly fell back, {totals['all_fell_back']} all fell back.",
    ]
    if "recorded_calls" in summary:
        lines.append(_calls_line(summary["recorded_calls"]))
    if "upstream_importer" in summary:
        upstream = summary["upstream_importer"]
        verdicts = ", ".join(
            f"{n} {verdict}" for verdict, n in sorted(upstream["verdicts"].items(), key=lambda p: -p[1])
        )
        lines.append(
            f"TVM's own importer on {upstream['entries']} of these entries ({upstream['passes']}, "
            f"{upstream['samples_per_entry']} samples each): {verdicts}."
        )
    if summary["seconds"]["median"] is not None:
        lines.append(
            f"{summary['seconds']['total']:,.0f} s of work, median {summary['seconds']['median']:.2f} s a sample."
        )
    return lines


def _calls_line(calls: dict[str, Any]) -> str:
    total = max(calls["calls"], 1)
    good = sum(calls["status"].get(status, 0) for status in ("pass", "vacuous"))
    tvm = sum(calls["kinds"].get(kind.value, 0) for kind in _RAN_BY_TVM)
    free = calls["kinds"].get("metadata", 0)
    return (
        f"Weighted by how often models made them, of {calls['calls']:,} calls {good / total:.1%} pass, "
        f"{tvm / total:.1%} run native or library and {free / total:.1%} need no kernel: of those that need one, "
        f"{tvm / max(calls['calls'] - free, 1):.1%} run native or library. {calls['scaled_records']:,} records were "
        f"scaled down, {calls['made_in_float32']:,} made in float32."
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:200]
