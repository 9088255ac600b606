# SPDX-License-Identifier: Apache-2.0
"""What a run shows: tables, geometric means, the profile, the plot."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.benchmarks.names import parse_against
from relaxgrad.benchmarks.plot import check_plot, plot
from relaxgrad.benchmarks.profile import analyse, typical
from relaxgrad.benchmarks.record import ratio_of, step_of
from relaxgrad.benchmarks.table import penalty, report, starts_table, steps_table
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.runtime.profile import KernelTime
from tests.benchmarks.records import PROFILE, model


def cells(table: str, row: str) -> list[str]:
    """The cells of the first line that begins with `row`."""
    (line, *_) = [line for line in table.splitlines() if line.startswith(f"| {row} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_steps_and_ratios() -> None:
    table = steps_table([model("a", eager=2.0), model("b", eager=8.0)])
    assert cells(table, "model") == [
        "model", "relaxgrad ms", "eager ms", "inductor ms", "relaxgrad error", "inductor error", "eager / relaxgrad",
        "inductor / relaxgrad",
    ]  # fmt: skip
    assert cells(table, "a")[1:4] == ["10.00 ±0", "20.00 ±0.2", "failed"]
    assert cells(table, "a")[6].startswith("2.000 ±0.02 (2.000")
    assert cells(table, "**geometric mean**")[6:] == ["4.000 (4.000)", "-"]


def test_errors_stand_beside_the_times_in_units_of_eagers() -> None:
    """Right and less accurate than eager is timed, and says by how much; an asterisk: eager is no steadier."""
    found = model("a")
    gradients = {"compared": 2, "failed": [], "missing": [], "worst": None, "worst_ratio": 1.6}
    found["candidates"]["relaxgrad"]["validation"] = {"loss": gradients | {"worst_ratio": 0.2}, "gradients": gradients}
    assert cells(steps_table([found]), "a")[4] == "6.4x"
    found["candidates"]["relaxgrad"]["conditioning"] = "seed 0: 2 tensors off by up to 1.0e-02"
    assert cells(steps_table([found]), "a")[4] == "6.4x*"
    assert "relaxgrad: ill-conditioned, and timed: seed 0: 2 tensors" in report([found])


def test_the_multiple_is_that_of_validation() -> None:
    from relaxgrad.benchmarks.record import AS_EAGER_MULTIPLE
    from relaxgrad.coverage.harness.numbers import AS_EAGER

    assert AS_EAGER.multiple == AS_EAGER_MULTIPLE


def test_what_symbolic_sizes_cost() -> None:
    """A model whose code fixes its batch says nothing of a symbolic one."""

    def symbolic(name: str, cost: float, is_symbolic: bool) -> dict[str, Any]:
        found = model(name, eager=cost)
        found["ratios"] = {"relaxgrad-batch": found["ratios"]["eager"]}
        found["candidates"]["relaxgrad-batch"] = found["candidates"]["eager"] | {"symbolic": is_symbolic}
        return found

    told = penalty([symbolic("a", 1.1, True), symbolic("b", 1.1, True), symbolic("c", 3.0, False)])
    assert told.startswith("A symbolic batch size takes +10.0% time by geometric mean of 2 models.")
    assert told.endswith("Their code fixes it: c.")
    assert not penalty([model()])


def test_starts_memory_and_graphs() -> None:
    table = starts_table([model("a")])
    assert cells(table, "a") == ["a", "relaxgrad", "4.00", "1.00", "2.00", "0.25", "6.00", "50", "-", "1", "0", "0"]
    assert "1.25x" in cells(table, "**relaxgrad / eager**")


def test_a_report_says_what_was_not_timed_and_has_a_part_for_each_malloc() -> None:
    text = report([model("a"), model("a", malloc="tuned")])
    assert text.count("## Steps: forward; 1 thread") == 2
    assert "- a (malloc tuned), inductor: failed: no C++ compiler" in text


def test_a_candidate_that_waited_for_a_cpu_is_named() -> None:
    record = model("a")
    assert "Disturbed" not in report([record])
    record["candidates"]["eager"]["step"]["cpu"] = 0.5
    text = report([record])
    assert (
        "Disturbed: 1 of 2 candidates had to wait for a CPU (CPU time over wall time, lowest: a eager (50%))." in text
    )
    assert "By CPU time, geometric means: eager / relaxgrad 2.000." in text


def test_the_profile_is_shown() -> None:
    text = report([model("a") | {"profile": PROFILE}])
    assert "share of the limit 0.78" in text
    assert cells(text, "library") == ["library", "2", "6.00", "60.0%", "1.0"]
    assert cells(text, "outside kernels")[2:4] == ["2.00", "20.0%"]
    assert cells(text, "0: addmm")[-4:] == ["400.0", "2%", "67%", "-"]
    assert cells(text, "1: fused_tanh")[-4:] == ["-", "90%", "-", "memory"]
    assert "memory-bound (100% of that time): 90% of the copy's bandwidth" in text
    assert "Memory-bound kernels of 1 of 1 models run at 90%" in text
    assert "90% of the copy's bandwidth" in text
    assert cells(text, "**geometric mean**")[-1] == "0.78 (0.78)"


def test_share_of_the_limit() -> None:
    times = [
        KernelTime(0, "addmm", Kind.LIBRARY, calls=2, seconds=0.004, bytes=100, flops=2 * 10**8),
        KernelTime(0, "slow", Kind.NATIVE, calls=1, seconds=0.002, bytes=10**7),  # half of the copy's rate
        KernelTime(1, "cached", Kind.NATIVE, calls=1, seconds=0.001, bytes=2 * 10**7),  # twice the copy's rate
        KernelTime(1, "aten.sort", Kind.FALLBACK, calls=1, seconds=0.001, bytes=0),
    ]
    found = analyse(times, step=0.010, copy=1e10, gemm=1e11)
    assert [row["name"] for row in found["kernels"]] == ["addmm", "slow", "cached", "aten.sort"]
    assert found["kernels"][0]["share_of_gemm"] == pytest.approx(0.5)
    assert found["kernels"][1]["share_of_copy"] == pytest.approx(0.5)
    assert found["limit_seconds"] == pytest.approx(0.004 + 3e7 / 1e10)
    assert found["share_of_limit"] == pytest.approx(0.7)
    assert found["share_of_limit_capped"] == pytest.approx((0.004 + 0.001 + 0.001) / 0.010)
    assert found["outside_kernels"] == pytest.approx(0.002)
    assert found["native_share_of_copy"] == pytest.approx((0.001 + 0.001) / 0.003)
    assert found["native_time_near_copy"] == pytest.approx(1 / 3)
    assert found["by_kind"]["native"]["seconds"] == pytest.approx(0.003)


def test_kernels_that_compute_are_told_from_those_that_wait_for_memory() -> None:
    """At 1e10 bytes and 5e10 instructions a second: five operations a byte are as long as the byte."""
    times = [
        KernelTime(0, "memory", Kind.NATIVE, seconds=0.002, bytes=10**7, operations=4 * 10**7),
        KernelTime(0, "arithmetic", Kind.NATIVE, seconds=0.003, bytes=10**7, operations=6 * 10**7),
        KernelTime(0, "unknown", Kind.NATIVE, seconds=0.004, bytes=10**7),
        KernelTime(0, "library", Kind.LIBRARY, seconds=0.005, bytes=10**7),
    ]
    found = analyse(times, step=0.010, copy=1e10, gemm=1e11)
    bound = {row["name"]: row["memory_bound"] for row in found["kernels"]}
    assert bound == {"memory": True, "arithmetic": False, "unknown": None, "library": None}
    assert found["memory_bound_seconds"] == pytest.approx(0.002)
    assert found["memory_bound_share_of_copy"] == pytest.approx(0.5)


def test_a_kernel_takes_its_median_over_the_steps() -> None:
    profiles = [
        [KernelTime(0, "a", Kind.NATIVE, calls=2, seconds=s, bytes=8), KernelTime(1, "a", Kind.LIBRARY, 1, 9 * s)]
        for s in (1.0, 7.0, 2.0)
    ]
    first, second = typical(profiles)
    assert (first.graph, first.calls, first.seconds, first.bytes) == (0, 2, 2.0, 8)
    assert (second.graph, second.kind, second.seconds) == (1, Kind.LIBRARY, 18.0)


def test_ratios_are_of_rounds_that_ran_together() -> None:
    def rounds(*seconds: float) -> list[dict[str, object]]:
        return [{"seconds": [s], "cpu": s / 2, "page_faults": 3} for s in seconds]

    own, other = step_of(rounds(1.0, 2.0, 4.0, 4.0)), step_of(rounds(2.0, 4.0, 8.0, 10.0))
    ratio = ratio_of(other, own)
    assert ratio.median == 2.0  # the machine slowed down for both
    assert ratio.of_medians == 2.0
    assert ratio.rounds == 4
    assert (own.cpu, own.page_faults) == (0.5, 3)


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_plot_is_a_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"run.{suffix}"
    check_plot(path)
    plot(path, [model("a"), model("b", eager=0.9), model("b", malloc="tuned")])
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG") if suffix == "png" else b"<svg" in data
    assert len(data) > 2000


def test_what_cannot_be_plotted_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"ends in \.svg or \.png"):
        check_plot(tmp_path / "run.pdf")
    with pytest.raises(UserError, match="no folder"):
        check_plot(tmp_path / "none" / "run.svg")
    with pytest.raises(UserError, match="nothing to plot"):
        plot(tmp_path / "run.svg", [model() | {"ratios": {}}])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install relaxgrad\[plot\]"):
        check_plot(tmp_path / "run.svg")


def test_candidates_by_name() -> None:
    assert parse_against("inductor, eager,inductor") == ("inductor", "eager")
    assert parse_against("my_package.backends:fast") == ("my_package.backends:fast",)
    for text, message in {
        "": "names no baseline",
        "relaxgrad": "takes part in any case",
        "relaxgrad-dynamic": "use --dynamic",
        "relaxgrad-batch": "use --dynamic",
        "no:such:thing": "not a baseline",
        "some/path.py": "not a baseline",
    }.items():
        with pytest.raises(UserError, match=re.escape(message)):
            parse_against(text)
