# SPDX-License-Identifier: Apache-2.0
"""docs/cuda.md: made from the stored rows, with what failed in its line."""

from __future__ import annotations

import json
from pathlib import Path

from relaxgrad.reports import cuda_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_stored_rows_make_of_it() -> None:
    stored = json.loads((ROOT / "docs" / "results" / "cuda.json").read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8") == cuda_page.page(stored)
    assert stored["models"]


def test_what_failed_stands_in_the_table(tmp_path: Path) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    use = {"name": "k", "registers": 12, "spilled": 0, "shared": 128}
    rows = {
        "good": {
            "status": "trained", "reason": "", "calls": {"native": 3, "library": 1}, "failed": [],
            "kernels": {"sm_80": [use | {"spilled": 4}], "sm_90": [use, use | {"registers": 40}]},
        },
        "ended": {"error": "Segmentation fault"},
    }  # fmt: skip
    (tmp_path / "zoo.json").write_text(json.dumps(rows))
    lines = [{"schema": 1}, {"entry": "abs", "status": "pass"}, {"entry": "acos", "status": "wrong"}]
    (tmp_path / "sweep.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert cuda_page.main([str(tmp_path / "zoo.json"), str(tmp_path / "sweep.jsonl")], tmp_path) == 0
    text = (tmp_path / "docs" / "cuda.md").read_text(encoding="utf-8")
    good = next(line for line in text.splitlines() if "`good`" in line)
    assert [c.strip() for c in good.split("|")[1:-1]] == ["`good`", "trained", "3", "1", "0", "2", "40", "128", "1"]
    assert "no result: Segmentation fault" in text
    assert "1 of 2 train two steps" in text
    assert "1 pass, 1 wrong" in text
