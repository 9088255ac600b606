# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/ops from the records of `relaxgrad audit`: a page per family of operators, and an overview.

`python -m relaxgrad.reports.ops_pages DIR...` reads the records (*.jsonl) of finished sweeps in those folders into
docs/ops/data.json and writes the pages, and coverage/verification.json for the audit; without a folder it makes the
pages anew from docs/ops/data.json. A test holds that the pages are what this makes of the data.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness.records import write_json, write_rows
from relaxgrad.coverage.sweeps.check import GOOD
from relaxgrad.coverage.sweeps.records import read_records
from relaxgrad.coverage.sweeps.summary import headline, kind_of, summarise

from .markdown import cell, templates

SCHEMA = 2  # of what is stored
VERIFICATION_SCHEMA = 1  # of the audit's table
COUNTS = ("core", "recorded", "opinfo")  # each [passed, all]
_FAILURES_SHOWN = 5  # of each op

#: Families by the file of the importer that converts the op; the others are told by how they run.
FAMILIES = {
    "pointwise": ("Pointwise", "One element of the output for each element of the broadcast inputs."),
    "special": ("Special functions", "Pointwise functions beyond the elementary ones."),
    "reduce": ("Reductions", "Sums, products, extremes, variances and softmaxes over dims."),
    "scan": ("Scans", "Running sums, products and extremes along a dim."),
    "sort": ("Sorting and picking", "Sorts, top-k, medians and searches."),
    "index": ("Indexing", "Gather, scatter, index, embedding."),
    "join": ("Joining and rearranging", "Concatenation, padding, flips and writes into slices."),
    "view": ("Views", "Other shapes of the same memory."),
    "creation": ("Creation", "Tensors from sizes and numbers."),
    "pool": ("Pooling", "Average and maximum pooling and their backward."),
    "norm": ("Normalisation", "Batch, layer and group norms and their backward."),
    "grid": ("Grid sampling and resizing", "Sampling at real coordinates, and its backward."),
    "gemm": ("Matrix products", "Matrix products by the library."),
    "convolution": ("Convolution", "Convolutions of all kinds and their backward."),
    "resize": ("Resizing", "Upsampling and its backward."),
    "segment": ("Segments", "Reductions over runs of rows, and their backward."),
    "integer": ("Integer arithmetic", "Common divisors and multiples, and powers by repeated squaring."),
    "loss": ("Losses", "Losses and their backward."),
    "library": ("Library calls", "ATen kernels chosen on purpose: matrix products, convolutions, attention, LAPACK."),
    "random": ("Random numbers", "Drawn from PyTorch's own generator."),
    "in-place": ("In place", "Ops that write into an argument; they are made functional before they get to TVM."),
    "decomposed": (
        "Decomposed",
        "Ops that PyTorch's tables take apart before they get to TVM; validated by their own calls.",
    ),
    "fallback": ("Without a lowering", "Ops that run in ATen inside the compiled graph."),
}


# ---------------------------------------------------------------------------------------------------------------------
# Records -> data


def collect(files: Sequence[Path]) -> dict[str, Any]:
    """What the records of sweeps say of each op; plain data. Raises UserError for a file that is not one."""
    data: dict[str, Any] = {"schema": SCHEMA, "versions": {}, "sweeps": [], "ops": {}}
    for file in sorted(files):
        head, records = read_records(file)
        summary = summarise(head, records)
        data["versions"] |= head.get("versions", {})
        settings = {k: v for k, v in head["settings"].items() if k != "file" and v is not None}
        data["sweeps"].append({"sweep": head["sweep"], "settings": settings, "lines": headline(summary)})
        for record in records:
            _take(data["ops"], head, record)
    data["ops"] = {name: _told(name, op) for name, op in sorted(data["ops"].items())}
    return data


def _told(name: str, op: dict[str, Any]) -> dict[str, Any]:
    """What a page says of an op, of all that was gathered; what was not measured is left out."""
    notes = [*op["failures"], *(f"falls back: {reason}" for reason in op["reasons"])]
    told = {
        "family": family_of(name, op),
        "kind": _kinds(op["kinds"] or op["call_kinds"]),
        "verification": _verification(op),
        "dtypes": ", ".join(sorted(op["dtypes"])),
        "symbolic": op["symbolic"],
        **{key: op[key] if op[key][1] else None for key in COUNTS},
        "notes": notes,
    }
    return {key: value for key, value in told.items() if value}


def _take(ops: dict[str, Any], head: dict[str, Any], record: dict[str, Any]) -> None:
    """Adds one record: to the op that it called, and to every op in its graphs."""
    dynamic = bool(head["settings"].get("dynamic"))
    good = record["status"] in GOOD
    for name, kinds in record.get("ops", {}).items():
        op = _entry(ops, _python_name(name))
        for kind, count in kinds.items():
            op["kinds"][kind] = op["kinds"].get(kind, 0) + count
        if head["sweep"] == "opinfo":
            op["opinfo"][0] += good
            op["opinfo"][1] += 1
            op["proved"] += record["status"] == "pass"
            if head["settings"]["dtype"] not in op["dtypes"]:
                op["dtypes"].append(head["settings"]["dtype"])
        if dynamic and good and record.get("symbolic"):
            op["symbolic"] += 1
    if head["sweep"] == "opinfo" or record["status"] == "eager":
        return
    op = _entry(ops, record["entry"])
    counts = op["core" if head["sweep"] == "core-aten" else "recorded"]
    counts[0] += good
    counts[1] += 1
    kind = kind_of(record).value
    op["call_kinds"][kind] = op["call_kinds"].get(kind, 0) + 1
    for output, status in record.get("outputs", {}).items():
        output = output.removeprefix("second size: ")
        worst_first = ("wrong", "verified", "untested")
        known = op["outputs"].get(output, "untested")
        op["outputs"][output] = min(known, status, key=worst_first.index)
    for dtype in re.findall(r"T\(\[[\d, ]*\], (\w+)", record.get("text", "")):
        if _DTYPE_NAMES.get(dtype, dtype) not in op["dtypes"]:
            op["dtypes"].append(_DTYPE_NAMES.get(dtype, dtype))
    if not good and len(op["failures"]) < _FAILURES_SHOWN:
        op["failures"].append(f"{record['status']}: `{record.get('text', '')}`: {record.get('detail', '')}"[:300])
    for reason in record.get("reasons", ()):
        if reason not in op["reasons"] and len(op["reasons"]) < _FAILURES_SHOWN:
            op["reasons"].append(reason)


def _python_name(name: str) -> str:
    """`operator.add` for `<built-in function add>`, `sym_float` for `<function sym_float at 0x7f...>`: ops on sizes."""
    found = re.fullmatch(r"<(built-in )?function (\w+)( at \w+)?>", name)
    return name if found is None else f"operator.{found[2]}" if found[1] else found[2]


def _entry(ops: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in ops:
        ops[name] = {"kinds": {}, "call_kinds": {}, "outputs": {}, "symbolic": 0, "proved": 0}
        ops[name] |= {key: [0, 0] for key in COUNTS}
        ops[name] |= {key: [] for key in ("dtypes", "failures", "reasons")}
    found: dict[str, Any] = ops[name]
    return found


_DTYPE_NAMES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "b8": "bool", "u8": "uint8",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "c32": "complex32", "c64": "complex64",
}  # fmt: skip


def family_of(name: str, op: dict[str, Any]) -> str:
    """The family of an op with its data: the importer's file that converts it, or how it runs (a key of FAMILIES)."""
    from relaxgrad.bridge.device import host
    from relaxgrad.bridge.importer.registry import implementations, overload

    found = overload(name) if name.count(".") == 2 else None
    known = implementations(found, host())
    if known:
        converter = known[0]
        if converter.function is None:
            random = "nondeterministic_seeded" in {tag.name for tag in found.tags}  # type: ignore[union-attr]  # it is registered
            return "random" if random else "library"
        return str(converter.function.__module__).rpartition(".")[2]
    if found is not None and found._schema.is_mutable:
        return "in-place"
    return "fallback" if "fallback" in op["kinds"] else "decomposed"


# ---------------------------------------------------------------------------------------------------------------------
# Data -> pages


def pages(data: dict[str, Any]) -> dict[str, str]:
    """Text of each page by file name."""
    environment = templates()
    present = {op["family"] for op in data["ops"].values()}
    keys = [key for key in FAMILIES if key in present] + sorted(present - FAMILIES.keys())
    families = [_family(key, data["ops"]) for key in keys]
    made = {family["file"]: environment.get_template("ops_page.md.j2").render(family=family) for family in families}
    sweeps = [{"title": _title(sweep), "lines": sweep["lines"]} for sweep in data["sweeps"]]
    overview = environment.get_template("ops_overview.md.j2")
    made["README.md"] = overview.render(families=families, sweeps=sweeps, versions=data["versions"])
    return {name: text.rstrip() + "\n" for name, text in made.items()}


def _title(sweep: dict[str, Any]) -> str:
    names = {"opinfo": "OpInfo", "core-aten": "Core ATen", "op-logs": "Recorded training calls"}
    settings = [str(sweep["settings"].get("dtype", "")), "symbolic sizes" if sweep["settings"].get("dynamic") else ""]
    samples = sweep["settings"].get("samples")
    settings.append(f"{samples} samples an entry" if samples else "every sample")
    return f"{names.get(sweep['sweep'], sweep['sweep'])} ({', '.join(s for s in settings if s)})"


def _family(key: str, ops: dict[str, Any]) -> dict[str, Any]:
    title, about = FAMILIES.get(key, (key.capitalize(), f"Ops converted in `importer/ops/{key}.py`."))
    rows = [_row(name, op) for name, op in ops.items() if op["family"] == key]
    counts = Counter("mixed" if "," in row["kind"] else row["kind"].split(" ")[0] for row in rows)
    return {"title": title, "about": about, "file": f"{key}.md", "ops": rows, "counts": counts}


def _row(name: str, op: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "anchor": re.sub(r"[^\w-]", "", name.lower()),
        "kind": op["kind"],
        "verification": op["verification"],
        "dtypes": op.get("dtypes", "-"),
        "symbolic": op.get("symbolic", "-"),
        **{key: f"{op[key][0]} of {op[key][1]}" if key in op else "-" for key in COUNTS},
        "notes": [cell(note) for note in op.get("notes", ())],
    }


def _kinds(kinds: dict[str, int]) -> str:
    if len(kinds) == 1:
        return next(iter(kinds))
    total = sum(kinds.values())
    return ", ".join(f"{kind} {n / total:.0%}" for kind, n in sorted(kinds.items(), key=lambda p: (-p[1], p[0]))) or "-"


def _verification(op: dict[str, Any]) -> str:
    verifications = op["outputs"]
    wrong = [name for name, status in verifications.items() if status == "wrong"]
    if wrong:
        return f"wrong ({', '.join(wrong)})"
    if "verified" in verifications.values():
        untested = [name for name, status in verifications.items() if status == "untested" and name.startswith("out")]
        return "verified" + (f" ({', '.join(untested)} untested)" if untested else "")
    return "verified through OpInfo" if op["proved"] else "untested"


def verification_table(data: dict[str, Any]) -> dict[str, Any]:
    """What the audit of a model reads: the verification status of each op, in one word."""
    return {
        "schema": VERIFICATION_SCHEMA,
        "versions": data["versions"],
        "ops": {name: op["verification"].split(" ")[0] for name, op in data["ops"].items()},
    }


def main(arguments: Sequence[str], root: Path) -> int:
    """Makes the pages below `root`/docs/ops and the audit's table; 0. Raises UserError where there are no records."""
    folder = root / "docs" / "ops"
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / "data.json"
    if arguments:
        files = [file for name in arguments for file in Path(name).glob("*.jsonl")]
        if not files:
            raise UserError(f"no *.jsonl in {', '.join(arguments)}; `relaxgrad audit -o DIR` makes them")
        data = collect(files)
        write_rows(stored, data)
        table = root / "coverage" / "verification.json"
        table.parent.mkdir(parents=True, exist_ok=True)
        write_json(table, verification_table(data))
    made = pages(json.loads(stored.read_text(encoding="utf-8")))
    for old in folder.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
