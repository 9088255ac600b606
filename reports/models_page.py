# SPDX-License-Identifier: Apache-2.0
"""docs/models.md: every model of an audit, whether it trains, what runs it, and what stands in the way.

`python -m relaxgrad.reports.models_page AUDIT` reads the audit.jsonl of `relaxgrad audit --zoo all -o DIR` (or a merged
one) into docs/results/models.json, a row a model, and writes the page; without a file it makes the page anew from the
rows. A test holds that the page is what this makes of them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relaxgrad.coverage.audit.many import FILE, read_audit
from relaxgrad.coverage.blockers.finding import Level
from relaxgrad.coverage.harness.records import write_rows, write_text
from relaxgrad.coverage.harness.train_record import Conditioning
from relaxgrad.coverage.zoo import ZOO

from .markdown import cell, table

SCHEMA = 2
STEPS = 8  # of an audit whose settings do not say
CLEAR = Level.CLEAR.value
TRAINS = ("trains", "trains, partly in PyTorch")
PLACES = 3  # lines of a model that are named for each finding

GROUP_COLUMNS = (
    "group", "models", "train on TVM", "of these partly in PyTorch", "gradients right", "native", "library", "fallback",
    "metadata", "TVM's own importer: graphs right",
)  # fmt: skip
MODEL_COLUMNS = (
    "model", "verdict", "parameters", "graphs", "breaks", "native", "library", "fallback", "gradients right",
    "operators", "dynamic shapes", "in place", "TVM's own importer",
)  # fmt: skip


def rows(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the page says of each model: plain data, a fraction of an audit's records, in the order of the zoo."""
    place = {name: number for number, name in enumerate(ZOO)}
    return [_row(record) for record in sorted(records, key=lambda r: place.get(r["model"], len(place)))]


def _row(record: dict[str, Any]) -> dict[str, Any]:
    train, findings = record["train"] or {}, record["findings"]
    gradients = train.get("gradients", {"compared": 0, "failed": []})
    calls = findings.get("operators", {}).get("numbers", {}).get("calls_by_kind", {})
    upstream = record["upstream"]
    return {
        "model": record["model"],
        "group": record["group"],
        "verdict": record["verdict"],
        "cause": record["cause"],
        "reason": record["reason"],
        "parameters": record["parameters"],
        "graphs": sum(train.get("graphs", {}).values()),
        "breaks": sum(train.get("graph_breaks", {}).values()),
        "calls": {kind: number for kind, number in calls.items() if number},
        "gradients": [gradients["compared"] - len(gradients["failed"]), gradients["compared"]],
        "less_accurate": gradients.get("less_accurate", []),
        "zeros": gradients.get("zeros", []),
        "conditioning": [Conditioning(**one).told() for one in train.get("conditioning", ())],
        "validated_seed": train.get("seed"),
        "findings": {name: _finding(finding) for name, finding in findings.items()},
        "upstream": None if upstream is None else [sum(r["outcome"] == "right" for r in upstream), len(upstream)],
    }


def _finding(finding: dict[str, Any]) -> dict[str, Any]:
    """Its level, and of one that is told under the table what is told."""
    if finding["level"] == CLEAR:
        return {"level": CLEAR}
    places = [{"what": e["what"], "where": _path(e["where"])} for e in finding["evidence"] if e["where"]][:PLACES]
    return {"level": finding["level"], "headline": finding["headline"], "places": places}


def with_stored_blockers(new: Sequence[dict[str, Any]], stored: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of an audit with `--no-blockers`, what it did not measure taken from the stored rows of its models."""
    before = {row["model"]: row for row in stored}
    found = []
    for row in new:
        old = before.get(row["model"], {"findings": {}, "upstream": None})
        kept = {"findings": old["findings"] | row["findings"], "upstream": row["upstream"] or old["upstream"]}
        found.append(row | kept)
    return found


def _without_evidence(finding: dict[str, Any]) -> dict[str, Any]:
    return {key: finding[key] for key in ("blocker", "level", "headline")}


def group_table(found: Sequence[dict[str, Any]]) -> str:
    """A Markdown table with a line a group, and one for all."""
    lines = [_group_line(name, members) for name, members in groups(found).items()]
    return table([*lines, _group_line("**all**", list(found))], GROUP_COLUMNS)


def groups(found: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each group, groups in the order in which they first appear."""
    members: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        members.setdefault(row["group"] or "own", []).append(row)
    return members


def _group_line(name: str, members: list[dict[str, Any]]) -> list[str]:
    calls: Counter[str] = Counter()
    for row in members:
        calls.update(row["calls"])
    total = sum(calls.values())
    right, compared = (sum(row["gradients"][i] for row in members) for i in (0, 1))
    upstream = [row["upstream"] for row in members if row["upstream"] is not None]
    return [
        name,
        str(len(members)),
        str(sum(row["verdict"] in TRAINS for row in members)),
        str(sum(row["verdict"] == TRAINS[1] for row in members)),
        f"{right:,} of {compared:,}",
        *(f"{calls[kind] / total:.1%}" if total else "-" for kind in ("native", "library", "fallback", "metadata")),
        f"{sum(r for r, _ in upstream)} of {sum(n for _, n in upstream)}" if upstream else "-",
    ]


def _model_line(row: dict[str, Any]) -> list[str]:
    levels = [row["findings"].get(name, {}).get("level", "-") for name in _FINDINGS]
    verdict = row["verdict"] + (f", {row['cause']}" if row["cause"] else "")
    return [
        f"`{row['model']}`",
        verdict,
        f"{row['parameters']:,}",
        str(row["graphs"]),
        str(row["breaks"]),
        *(str(row["calls"].get(kind, 0)) for kind in ("native", "library", "fallback")),
        f"{row['gradients'][0]} of {row['gradients'][1]}",
        *levels,
        "-" if row["upstream"] is None else f"{row['upstream'][0]} of {row['upstream'][1]}",
    ]


_FINDINGS = ("operators", "dynamic shapes", "in-place and optimizer state")


def page(data: dict[str, Any]) -> str:
    """The text of docs/models.md."""
    found = data["models"]
    versions = data["versions"]
    parts = [
        "# Models",
        "Made from an audit by `python -m relaxgrad.reports.models_page`; nothing here is written by hand. "
        f"Measured with torch {versions['torch']}, apache-tvm {versions['apache-tvm']}, transformers "
        f"{versions['transformers']}; `relaxgrad audit --zoo all -o DIR` measures anew." + _older(data),
        f"{sum(row['verdict'] in TRAINS for row in found)} of {len(found)} models train on TVM: a step in train mode "
        "was compiled, forward and backward, every gradient is right by the float64 rule ([numbers.md](numbers.md)) "
        f"and the losses of {data.get('settings', {}).get('steps', STEPS)} AdamW steps are within eager's own spread. "
        "A model trains partly in PyTorch where ops fall back to ATen, or where Dynamo breaks its graph. The "
        "columns of the blockers say what is left of each: clear, worked around, blocks.",
        group_table(found),
        *(f"- {f['blocker']}: {f['level']}: {cell(f['headline'])}" for f in data.get("installation", ())),
    ]
    for name, members in groups(found).items():
        parts += [f"## {name.capitalize()}", table([_model_line(row) for row in members], MODEL_COLUMNS)]
        notes = [note for row in members for note in _notes(row)]
        if notes:
            parts.append("\n".join(notes))
    return "\n\n".join(parts) + "\n"


def _older(data: dict[str, Any]) -> str:
    if data.get("settings", {}).get("blockers", True):
        return ""
    return (
        " Verdicts, gradients and operators are of the last run, with `--no-blockers`; dynamic shapes, in-place "
        "updates and TVM's own importer are of the run before it."
    )


def _notes(row: dict[str, Any]) -> list[str]:
    notes = [f"- `{row['model']}` {row['verdict']}: {cell(row['reason'])}"] if row["reason"] else []
    if told := row.get("conditioning"):
        seed = row["validated_seed"]
        after = "" if row["verdict"] not in TRAINS else f"; validated at seed {seed}, where it is right"
        notes.append(f"- `{row['model']}` is ill-conditioned: {cell('; '.join(told))}{after}")
    if less := row.get("less_accurate"):
        more = f" and {len(less) - 1} more" if len(less) > 1 else ""
        where = f"{len(less)} gradient{'s' * (len(less) > 1)}"
        notes.append(f"- `{row['model']}` is right, less accurate than eager in {where}: {cell(less[0])}{more}")
    if zeros := row.get("zeros"):
        notes.append(
            f"- `{row['model']}`: AOTAutograd gives a gradient of exactly zero where eager gives none, to "
            f"{', '.join(f'`{name}`' for name in zeros)}: AdamW decays a weight whose gradient is zero and "
            "skips one that has none"
        )
    for name, finding in row["findings"].items():
        if finding["level"] == CLEAR:
            continue
        told = f"- `{row['model']}`, {name}: {cell(finding['headline'])}"
        places = [f"{cell(p['what'])} at `{cell(p['where'])}`" for p in finding["places"]]
        notes.append(told + (f" ({'; '.join(places)})" if places else ""))
    return notes


def _path(where: str) -> str:
    """A line without the folders of this machine; of our own zoo, whose lines move, its code without a number."""
    path, _, line = where.partition(":")
    _, own, inside = path.partition("/coverage/zoo/")
    if own:
        told = f"coverage/zoo/{inside} {line.partition(' ')[2]}".strip()
    else:
        told = f"{path.rpartition('site-packages/')[2]}:{line}"
    return told.replace("`", "'")


def main(arguments: Sequence[str], root: Path) -> int:
    """Writes the rows and the page below `root`/docs; 0. Raises UserError for what is no audit."""
    stored = root / "docs" / "results" / "models.json"
    if arguments:
        path = Path(arguments[0])
        head, records = read_audit(path / FILE if path.is_dir() else path)
        found = rows(records)
        if not head["settings"].get("blockers", True) and stored.exists():
            found = with_stored_blockers(found, json.loads(stored.read_text(encoding="utf-8"))["models"])
        write_rows(
            stored,
            {
                "schema": SCHEMA,
                "settings": head["settings"],
                "versions": head["versions"],
                "installation": [_without_evidence(f) for f in head.get("installation", ())],
                "models": found,
            },
        )
    write_text(root / "docs" / "models.md", page(json.loads(stored.read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
