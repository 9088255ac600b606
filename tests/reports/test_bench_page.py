# SPDX-License-Identifier: Apache-2.0
"""docs/measured.md: made from the stored run of the benchmarks, and only of a run."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.benchmarks.check import changes, check_comparable, read_run
from relaxgrad.bridge.errors import UserError
from relaxgrad.reports import bench_page
from tests.benchmarks.records import PROFILE, model

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_stored_run_makes_of_it() -> None:
    stored, others = bench_page.stored_runs(ROOT / "docs" / "results")
    assert (ROOT / "docs" / "measured.md").read_text(encoding="utf-8") == bench_page.page(stored, others)
    assert sum(model["malloc"] == "system" for model in stored["models"]) >= 12


def run() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((ROOT / "docs" / "results" / "bench.json").read_text(encoding="utf-8"))
    stored["models"] = stored["models"][:1]
    return stored


def test_the_command_stores_a_run_with_the_kernels_that_are_shown(tmp_path: Path) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    data = run()
    kernel = {
        "graph": 0, "name": "k", "kind": "native", "calls": 1, "seconds": 1e-3, "bytes": 8, "flops": 0,
        "share_of_copy": 0.5, "share_of_gemm": None,
    }  # fmt: skip
    data["models"][0]["profile"] = {
        "step_seconds": 1e-2, "limit_seconds": 9e-3, "share_of_limit": 0.9, "share_of_limit_capped": 0.8,
        "copy_rate": 1e10, "gemm_rate": 1e11, "threads": 1, "outside_kernels": 1e-3, "native_time_near_copy": None,
        "by_kind": {"native": {"calls": 40, "seconds": 4e-2, "bytes": 320}}, "kernels": [kernel] * 40,
    }  # fmt: skip
    file = tmp_path / "run.json"
    file.write_text(json.dumps(data))
    assert bench_page.main([str(file)], tmp_path) == 0
    stored = json.loads((tmp_path / "docs" / "results" / "bench.json").read_text())
    assert len(stored["models"][0]["profile"]["kernels"]) == bench_page.KERNELS
    text = (tmp_path / "docs" / "measured.md").read_text()
    assert "share of the limit 0.90, 0.80" in text
    assert bench_page.main([], tmp_path) == 0
    assert (tmp_path / "docs" / "measured.md").read_text() == text
    assert bench_page.main([str(file), "threads"], tmp_path) == 0
    more = (tmp_path / "docs" / "measured.md").read_text()
    assert more.startswith(text.rstrip())
    assert "## Other settings, threads" in more[len(text.rstrip()) :]
    assert "another machine" not in more
    file.write_text(json.dumps(data | {"machine": data["machine"] | {"cpu": "a CPU"}}))
    assert bench_page.main([str(file), "elsewhere"], tmp_path) == 0
    assert "On another machine: a CPU." in (tmp_path / "docs" / "measured.md").read_text()


def test_what_is_stored_shows_and_compares_as_the_whole_run(tmp_path: Path) -> None:
    record = model() | {"inputs": ["x 4"], "profile": copy.deepcopy(PROFILE)}
    record["profile"]["kernels"][1]["name"] = "fused_" + "tanh_" * 20
    whole = {key: value for key, value in run().items() if key != "models"} | {"models": [record]}
    short, other = bench_page.summary(whole), bench_page.summary(whole, others=True)
    assert bench_page.page(short, {"threads": other}) == bench_page.page(whole, {"threads": whole})
    assert "rounds" not in json.dumps(short["models"][0]["candidates"])
    assert bench_page.summary(short) == short
    (tmp_path / "docs" / "results").mkdir(parents=True)
    file = tmp_path / "docs" / "results" / "bench.json"
    file.write_text(json.dumps(whole))
    assert bench_page.main([str(file)], tmp_path) == 0
    found = read_run(file)
    check_comparable(file, found, whole["machine"], whole["settings"])
    now = [model(eager=1.5)]
    assert [str(c) for c in changes(now, found["models"])] == [str(c) for c in changes(now, whole["models"])]


def test_the_stored_run_compares_with_itself() -> None:
    path = ROOT / "docs" / "results" / "bench.json"
    found = read_run(path)
    check_comparable(path, found, found["machine"], found["settings"])
    same = changes(found["models"], found["models"])
    assert len(same) > 24
    assert not any(change.fell for change in same)


def test_a_run_of_one_grade_calls_nothing_wrong_that_is_right() -> None:
    main = run()
    record = main["models"][0]
    own = next(iter(record["candidates"].values()))

    def told(ratio: float, **more: Any) -> str:
        others = {"loss": {"worst_ratio": None}, "gradients": {"worst_ratio": ratio}}
        found = own | {"name": "other", "status": "wrong", "reason": "off", "validation": own["validation"] | others}
        old = {key: value for key, value in record.items() if key != "inputs"} | more
        other = main | {"models": [old | {"candidates": record["candidates"] | {"other": found}}]}
        return bench_page.page(main, {"old": other}).partition("## Other settings, old")[2]

    assert "other: not timed: 6.0x eager's error, right;" in told(1.5)
    assert "other: not timed: 10.0x eager's error, not asked whether eager is steadier;" in told(2.5)
    assert "other: wrong: off" in told(1.5, inputs="of now")


def test_another_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    file.write_text('{"command": "train"}')
    with pytest.raises(UserError, match="is no run of"):
        bench_page.main([str(file)], tmp_path)
