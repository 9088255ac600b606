# SPDX-License-Identifier: Apache-2.0
"""Graph samples there and back in other processes: what comes through, and what does not is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relaxgrad.coverage.round_trip import main, passed, replay_task, summary
from relaxgrad.coverage.samples.schema import JSON_FILE
from relaxgrad.coverage.zoo import REPORTED


@pytest.mark.slow
def test_a_model_comes_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seed-example", "-o", str(tmp_path)]) == 0
    (record,) = json.loads((tmp_path / "round_trip.json").read_text())["models"]
    folders = {file.parent.name for file in tmp_path.rglob(JSON_FILE)}
    assert {"joint-core_aten", "joint-none", "forward-0", "backward-1"} < folders
    assert sum(name.startswith("fused-") for name in folders) >= 2
    assert record["samples"] == len(folders)
    assert passed(record)
    assert record["backends"]["eager"]["outputs"].keys() == {"bit-equal"}
    assert record["backends"]["relaxgrad"]["outputs"].keys() <= {"bit-equal", "right by the float64 rule"}
    assert capsys.readouterr().out.splitlines()[-3:] == summary([record])


def test_what_does_not_come_through_is_named(tmp_path: Path) -> None:
    assert main(["seed-example", "-o", str(tmp_path), "--backend", "eager"]) == 0
    folder = tmp_path / "seed-example"
    text = (folder / "forward-0" / JSON_FILE).read_text()
    (folder / "forward-0" / JSON_FILE).write_text(text.replace('"seed": 7', '"seed": 8'))
    arguments = {"folder": str(folder), "samples": ["forward-0", "backward-1"], "backend": "eager"}
    found = replay_task(arguments, lambda event: None)
    assert found["failed"].keys() == {"forward-0"}
    assert "its hash is another" in found["failed"]["forward-0"]
    assert not passed({"error": "", "backends": {"eager": found}})


@pytest.mark.slow
@pytest.mark.parametrize("model", REPORTED)
def test_models_of_the_zoo(model: str, tmp_path: Path) -> None:
    assert main([model, "-o", str(tmp_path)]) == 0
