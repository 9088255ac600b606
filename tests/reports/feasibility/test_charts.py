# SPDX-License-Identifier: Apache-2.0
"""The numbers behind the charts of report.html, and what stands above them."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxgrad.reports.feasibility.charts import Chart, coverage, speeds, starts
from relaxgrad.reports.feasibility.html import html
from relaxgrad.reports.feasibility.schema import Model, Op, Report
from relaxgrad.reports.source_lines import in_file
from tests.reports.feasibility.records import crashes, falls_back, op, report, timed, trains
from tests.reports.html_page import page_of

NAMES = ["relaxgrad", "inductor", "eager"]


@pytest.fixture
def found(tmp_path: Path) -> Report:
    return report(tmp_path, [trains(), falls_back(), crashes()], [timed("mlp", 4.0), timed("qr", 0.5)])


def bars(chart: Chart, model: str) -> list[tuple[str, str, float, float]]:
    (row,) = [row for row in chart.rows if row.model == model]
    return [(bar.css, bar.label, round(bar.start, 1), round(bar.width, 1)) for line in row.lines for bar in line.bars]


def test_shares_add_up_and_a_model_without_any_says_so(found: Report) -> None:
    chart = coverage(found.models)
    assert bars(chart, "mlp") == [("native", "75%", 0, 75), ("library", "25%", 75, 25)]
    assert bars(chart, "qr") == [("native", "50%", 0, 50), ("fallback", "50%", 50, 50)]
    assert [row.note for row in chart.rows] == ["8 calls", "2 calls", "not measured"]
    assert [css for css, _ in chart.legend] == ["native", "library", "fallback"]


def test_twice_as_fast_reaches_half_as_far_as_four_times(found: Report) -> None:
    chart = speeds(found.models, NAMES)
    (_, eager) = bars(chart, "mlp")
    assert eager == ("eager", "4.00×", 50, 36)
    (_, eager) = bars(chart, "qr")
    assert eager == ("eager", "0.50×", 32, 18)  # ends at the line
    assert [(tick.label, tick.at, tick.extra) for tick in chart.ticks] == [
        ("0.25×", 14, False), ("0.5×", 32, True), ("1×", 50, False), ("2×", 68, True), ("4×", 86, False),
    ]  # fmt: skip
    assert "gpt" not in [row.model for row in chart.rows]  # it does not train, so it was not timed


def test_what_was_not_timed_is_told_in_place_of_a_bar(found: Report) -> None:
    mlp, qr, _ = found.models
    del mlp.ratios["inductor"]
    mlp.candidates["inductor"].status, mlp.candidates["inductor"].step = "wrong", None
    qr.ratios = {}
    qr.candidates["relaxgrad"].status, qr.candidates["relaxgrad"].step = "crash", None
    chart = speeds(found.models, NAMES)
    assert [label for _, label, _, _ in bars(chart, "mlp")] == ["inductor: wrong", "4.00×"]
    assert [label for _, label, _, _ in bars(chart, "qr")] == ["relaxgrad: crash"]


def test_first_steps_start_at_nothing_and_have_units(found: Report) -> None:
    found.models[0].candidates["eager"].first = 0.004
    chart = starts(found.models, NAMES)
    assert bars(chart, "mlp") == [
        ("own", "2.0 s", 0, 21.5), ("other-0", "8.0 s", 0, 86), ("eager", "4 ms", 0, 0.3),
    ]  # fmt: skip
    assert [tick.label for tick in chart.ticks] == ["0 s", "2 s", "4 s", "6 s", "8 s"]


def test_without_times_there_is_nothing_to_draw(tmp_path: Path) -> None:
    found = report(tmp_path, [trains()], [])
    assert not speeds(found.models, []).rows
    assert not starts(found.models, []).rows


def test_the_figures_of_all_models_and_what_stands_in_the_way(found: Report) -> None:
    text = " ".join(page_of(html(found)).text.split())
    for expected in (
        "models train 2 of 3 1 of them partly in PyTorch",
        "gradients right 8 of 8",
        "op calls fall back 1 of 10",
        "inductor's speed 1.10× a step, geometric mean of 2 models",
        "eager's speed 1.41×",
        "as soon as Inductor 4.0×",
        "graphs right 1 of 2 with TVM's own importer",
    ):
        assert expected in text
    way = text[text.index("What stands in the way") : text.index("Step time")]
    left = "qr trains. Left: operators worked around: 1 of 2 calls"
    assert way.index("gpt: crash: killed by SIGSEGV") < way.index(left)
    assert "mlp:" not in way


def test_what_is_left_of_models_that_all_train(tmp_path: Path) -> None:
    found = report(tmp_path, [trains()], [])
    assert "What is left" not in html(found)
    found.models[0].findings[0].level = "worked around"
    text = " ".join(page_of(html(found)).text.split())
    assert "What is left yes mlp trains. Left: operators worked around: all 8 calls are native" in text
    assert "none of them partly in PyTorch" in text


def test_paths_are_shortened_to_what_tells_them_apart(found: Report) -> None:
    def with_sources(model: Model, *sources: str) -> None:
        model.ops = [Op(**op("aten.add.Tensor", "native", 1, (source,))) for source in sources]

    with_sources(found.models[0], "/home/me/zoo/text.py:7 (x + /y)", "/home/me/zoo/vision/cnn.py:9 (x)")
    with_sources(found.models[1], "/venv/lib/python3.11/site-packages/transformers/bert.py:5 (x)")
    page = page_of(html(found))
    for expected in ("text.py:7 (x + /y)", "vision/cnn.py:9 (x)", "transformers/bert.py:5 (x)"):
        assert expected in page.text
    assert "/home" not in page.text
    assert "site-packages" not in page.text
    assert in_file("/home/me/zoo/text.py:7 (x + /y)") == "text.py:7 (x + /y)"
    assert in_file("coverage/upstream/known_bugs/a.py") == "coverage/upstream/known_bugs/a.py"
