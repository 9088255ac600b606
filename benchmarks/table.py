# SPDX-License-Identifier: Apache-2.0
"""The tables of a run, as Markdown: step times and ratios, first steps and memory, the profile of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .names import BATCH, DYNAMIC, EAGER, RELAXGRAD, SYMBOLIC
from .record import Status, geometric_mean, times_eager

KERNELS = 25  # of a profile that are shown
NAME = 50  # characters of a kernel's name
UNDISTURBED = 0.95  # CPU time over wall time of a step, at least: one thread is always at work


def _table(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
    from tabulate import tabulate

    align = ("left", *["right"] * (len(columns) - 1))
    return str(tabulate(rows, columns, tablefmt="github", colalign=align, disable_numparse=True))


def _names(records: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record["candidates"]))


def steps_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Step times, and how many times as long the others' take; the last line has the geometric means."""
    names = _names(records)
    others = [name for name in names if name != RELAXGRAD]
    profiled = any(record["profile"] for record in records)
    columns = ["model", *(f"{name} ms" for name in names), *(f"{name} error" for name in compilers(names))]
    columns += [f"{name} / relaxgrad" for name in others]
    columns += ["share of the limit (capped)"] if profiled else []
    rows = [_step_row(record, names, others, profiled) for record in records]
    means = ["**geometric mean**", *[""] * (len(names) + len(compilers(names)))]
    means += [_mean(records, name) for name in others]
    if profiled:
        profiles = [record["profile"] for record in records if record["profile"]]
        share, capped = (geometric_mean([p[k] for p in profiles]) for k in ("share_of_limit", "share_of_limit_capped"))
        means.append(f"{share:.2f} ({capped:.2f})")
    return _table([*rows, means], columns)


def _step_row(record: Mapping[str, Any], names: Sequence[str], others: Sequence[str], profiled: bool) -> list[str]:
    row = [record["model"]]
    for name in names:
        candidate = record["candidates"].get(name)
        step = candidate and candidate["step"]
        row.append(_milliseconds(step) if step else (candidate["status"] if candidate else "-"))
    row += [_times_eager(record["candidates"].get(name)) for name in compilers(names)]
    row += [_ratio(record["ratios"].get(name)) for name in others]
    if profiled:
        profile = record["profile"]
        row.append(f"{profile['share_of_limit']:.2f} ({profile['share_of_limit_capped']:.2f})" if profile else "-")
    return row


def compilers(names: Sequence[str]) -> list[str]:
    """The candidates whose errors are told beside eager's."""
    return [name for name in names if name != EAGER and name not in SYMBOLIC]


def _times_eager(candidate: Mapping[str, Any] | None) -> str:
    """The largest error of the first step in units of eager's; an asterisk where eager is no steadier itself."""
    times = candidate and times_eager(candidate["validation"])
    if not candidate or times is None:
        return "-"
    return f"{times:.1f}x" + ("*" if candidate.get("conditioning") else "")


def inputs_of(records: Sequence[Mapping[str, Any]]) -> str:
    """The batch of each model in a few words, models of the same inputs together; of older runs nothing is known."""
    same: dict[str, list[str]] = {}
    for record in records:
        same.setdefault(", ".join(record.get("inputs") or ["not recorded"]), []).append(record["model"])
    return "; ".join(f"{', '.join(models)}: {inputs}" for inputs, models in same.items())


def _milliseconds(step: Mapping[str, Any]) -> str:
    spread = "" if step["spread"] is None else f" ±{_brief(step['spread'] / 2 * 1e3)}"
    return f"{step['median'] * 1e3:.2f}{spread}"


def _ratio(ratio: Mapping[str, Any] | None) -> str:
    if ratio is None:
        return "-"
    spread = "" if ratio["spread"] is None else f" ±{_brief(ratio['spread'] / 2)}"
    return f"{ratio['median']:.3f}{spread} ({ratio['of_medians']:.3f})"


def _brief(value: float) -> str:
    """Two digits, without an exponent."""
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _mean(records: Sequence[Mapping[str, Any]], name: str) -> str:
    ratios = [record["ratios"][name] for record in records if name in record["ratios"]]
    if not ratios:
        return "-"
    single, medians = (geometric_mean([r[key] for r in ratios]) for key in ("median", "of_medians"))
    of = f", {len(ratios)} of {len(records)}" if len(ratios) < len(records) else ""
    return f"{single:.3f} ({medians:.3f}){of}"


START_COLUMNS = (
    "model", "candidate", "first step s", "backend s", "warm s", "warm backend s", "loading s", "peak MB", "warm MB",
    "graphs", "breaks", "recompiles",
)  # fmt: skip


def starts_table(records: Sequence[Mapping[str, Any]]) -> str:
    """First steps, memory and graphs: a line for each candidate of each model, then geometric means of ratios."""
    rows = [
        _start_row(record["model"], candidate)
        for record in records
        for candidate in record["candidates"].values()
        if candidate["cold"] and candidate["status"] != Status.WRONG
    ]
    for name in _names(records):
        if name not in (RELAXGRAD, EAGER):
            rows.append(_start_means(records, name))
    memory = [
        (r["candidates"][RELAXGRAD]["memory"], r["candidates"][EAGER]["memory"])
        for r in records
        if {RELAXGRAD, EAGER} <= r["candidates"].keys()
    ]
    shares = [own / eager for own, eager in memory if own and eager]
    if shares:
        rows.append(["**relaxgrad / eager**", *[""] * 6, f"{geometric_mean(shares):.2f}x", *[""] * 4])
    return _table(rows, START_COLUMNS)


def _start_row(model: str, candidate: Mapping[str, Any]) -> list[str]:
    cold, warm = candidate["cold"], candidate["warm"]
    return [
        model,
        candidate["name"],
        _seconds(cold["first"]),
        _seconds(cold["backend"]),
        _seconds(warm and warm["first"]),
        _seconds(warm and warm["backend"]),
        _seconds(cold["loading"]),
        _megabytes(candidate["memory"]),
        _megabytes(candidate["warm_memory"]),
        *(
            (str(candidate["graphs"]), str(sum(candidate["graph_breaks"].values())), str(candidate["recompiles"]))
            if candidate["step"] and candidate["name"] != EAGER
            else ("-", "-", "-")
        ),
    ]


def _start_means(records: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """How many times as long a baseline's start takes."""

    def mean(which: str, key: str) -> str:
        pairs = []
        for record in records:
            both = [record["candidates"].get(n) for n in (RELAXGRAD, name)]
            if any(c is None or c["status"] == Status.WRONG for c in both):
                continue
            own, other = (c[which] for c in both)
            if own and other and own[key] and other[key]:
                pairs.append(other[key] / own[key])
        found = geometric_mean(pairs)
        return "-" if found is None else f"{found:.2f}x"

    times = [mean("cold", "first"), mean("cold", "backend"), mean("warm", "first"), mean("warm", "backend")]
    return ["**geometric mean**", f"{name} / relaxgrad", *times, *[""] * 6]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _megabytes(value: int | None) -> str:
    return "-" if value is None else f"{value / 1e6:.0f}"


def profile_tables(record: Mapping[str, Any]) -> str:
    """The profile of one model: by kind, then the kernels that take most."""
    profile = record["profile"]
    step = profile["step_seconds"]
    totals = [
        [
            kind,
            str(t["calls"]),
            f"{t['seconds'] * 1e3:.2f}",
            f"{t['seconds'] / step:.1%}",
            f"{t['bytes'] / 1e6:.1f}",
        ]
        for kind, t in profile["by_kind"].items()
    ]
    outside = profile["outside_kernels"]
    totals.append(["outside kernels", "", f"{outside * 1e3:.2f}", f"{outside / step:.1%}", ""])
    kernels = [
        [
            f"{k['graph']}: {short(k['name'])}",
            k["kind"],
            str(k["calls"]),
            f"{k['seconds'] * 1e3:.3f}",
            f"{k['seconds'] / step:.1%}",
            f"{k['bytes'] / 1e6:.2f}",
            f"{k['flops'] / 1e6:.1f}" if k["flops"] else "-",
            "-" if k["share_of_copy"] is None else f"{k['share_of_copy']:.0%}",
            "-" if k["share_of_gemm"] is None else f"{k['share_of_gemm']:.0%}",
            {None: "-", True: "memory", False: "arithmetic"}[k.get("memory_bound")],
        ]
        for k in profile["kernels"]
    ]
    more = f"\n\n{len(kernels) - KERNELS} more kernels are in the JSON." if len(kernels) > KERNELS else ""
    near = profile["native_time_near_copy"]
    native = (
        ""
        if near is None
        else (
            f" Native kernels: {profile['native_share_of_copy']:.0%} of the copy's bandwidth, weighted by time; "
            f"{near:.0%} of their time in kernels at 80% of it or more.{_memory_bound(profile)}"
        )
    )
    head = (
        f"### {record['model']}, malloc {record['malloc']}\n\n"
        f"A step takes {step * 1e3:.2f} ms; the limit is {profile['limit_seconds'] * 1e3:.2f} ms: share of the limit "
        f"{profile['share_of_limit']:.2f}, {profile['share_of_limit_capped']:.2f} where no kernel counts for more than "
        f"it takes. Large copy {profile['copy_rate'] / 1e9:.1f} GB/s, GEMM {profile['gemm_rate'] / 1e9:.0f} GFLOP/s, "
        f"{profile['threads']} thread{'' if profile['threads'] == 1 else 's'}.{native}"
    )
    by_kind = _table(totals, ("kind", "calls", "ms", "share", "MB"))
    columns = ("kernel", "kind", "calls", "ms", "share", "MB", "MFLOP", "of copy", "of GEMM", "bound by")
    return f"{head}\n\n{by_kind}\n\n{_table(kernels[:KERNELS], columns)}{more}"


def memory_bound(records: Sequence[Mapping[str, Any]]) -> str:
    """A sentence about the memory-bound kernels of all models; empty where none were told apart."""
    profiles = [record["profile"] for record in records if record["profile"]]
    known = [p for p in profiles if p.get("memory_bound_share_of_copy") is not None]
    seconds = sum(p["memory_bound_seconds"] for p in known)
    if not seconds:
        return ""
    share = sum(p["memory_bound_share_of_copy"] * p["memory_bound_seconds"] for p in known) / seconds
    return (
        f"Memory-bound kernels of {len(known)} of {len(profiles)} models run at {share:.0%} of the copy's bandwidth, "
        "weighted by time."
    )


def _memory_bound(profile: Mapping[str, Any]) -> str:
    """The figures of kernels that wait for memory and not for arithmetic; older runs have none."""
    share = profile.get("memory_bound_share_of_copy")
    if share is None:
        return ""
    part = profile["memory_bound_seconds"] / profile["by_kind"]["native"]["seconds"]
    return f" Those that are memory-bound ({part:.0%} of that time): {share:.0%} of the copy's bandwidth."


def short(name: str) -> str:
    """A fused kernel is named after all that is in it; the JSON of a run has the whole."""
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


def failures(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each model or candidate that was not timed."""
    lines = []
    for record in records:
        where = f"{record['model']} (malloc {record['malloc']})"
        if record["reason"]:
            lines.append(f"{where}: {record['reason']}")
        if record["profile_reason"]:
            lines.append(f"{where}: no profile: {record['profile_reason']}")
        for name, candidate in record["candidates"].items():
            if candidate["reason"]:
                lines.append(f"{where}, {name}: {candidate['status']}: {candidate['reason']}")
            if candidate.get("conditioning"):
                lines.append(f"{where}, {name}: ill-conditioned, and timed: {candidate['conditioning']}")
            if candidate["warm_reason"]:
                lines.append(f"{where}, {name}: no start with a warm cache: {candidate['warm_reason']}")
    return lines


def disturbed(records: Sequence[Mapping[str, Any]]) -> str:
    """The candidates that had to wait for a CPU, in one line; empty where none had."""
    shares = [
        (candidate["step"]["cpu"], f"{record['model']} {name}")
        for record in records
        for name, candidate in record["candidates"].items()
        if candidate["step"]
    ]
    low = sorted(share for share in shares if share[0] < UNDISTURBED)
    if not low:
        return ""
    worst = ", ".join(f"{where} ({share:.0%})" for share, where in low[:3])
    names = [name for name in _names(records) if name != RELAXGRAD]
    by_cpu = {name: _mean_of_cpu(records, name) for name in names}
    told = ", ".join(f"{name} / {RELAXGRAD} {mean:.3f}" for name, mean in by_cpu.items() if mean is not None)
    return (
        f"Disturbed: {len(low)} of {len(shares)} candidates had to wait for a CPU (CPU time over wall time, lowest: "
        f"{worst}). Repeat on a quiet machine." + (f" By CPU time, geometric means: {told}." if told else "")
    )


def _mean_of_cpu(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    ratios = [record["ratios"][name]["of_cpu"] for record in records if name in record["ratios"]]
    return geometric_mean([ratio for ratio in ratios if ratio])


def penalty(records: Sequence[Mapping[str, Any]]) -> str:
    """What symbolic sizes cost, by geometric mean; empty where they were not measured."""
    told = []
    for name, what in ((BATCH, "A symbolic batch size takes"), (DYNAMIC, "Every size symbolic takes")):
        timed = [record for record in records if name in record["ratios"]]
        symbolic = [record for record in timed if record["candidates"][name].get("symbolic", True)]  # of older runs
        if (mean := geometric_mean([record["ratios"][name]["median"] for record in symbolic])) is not None:
            told.append(f"{what} {mean - 1:+.1%} time by geometric mean of {len(symbolic)} models.")
        if fixed := [record["model"] for record in timed if record not in symbolic]:
            told.append(f"Their code fixes it: {', '.join(fixed)}.")
    return " ".join(told)


def report(records: Sequence[Mapping[str, Any]]) -> str:
    """All tables of a run; models of one malloc setting together."""
    parts = []
    for malloc in dict.fromkeys(record["malloc"] for record in records):
        chosen = [record for record in records if record["malloc"] == malloc]
        measured = [record for record in chosen if record["candidates"]]
        if measured:
            parts += [f"## Steps: {measured[0]['protocol']}", steps_table(measured)]
            parts += [text for text in (penalty(measured), memory_bound(measured), disturbed(measured)) if text]
            parts += ["## First steps, memory and graphs", starts_table(measured)]
        parts += [profile_tables(record) for record in chosen if record["profile"]]
        parts += ["\n".join(f"- {line}" for line in lines)] if (lines := failures(chosen)) else []
    return "\n\n".join(parts)
