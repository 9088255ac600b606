# SPDX-License-Identifier: Apache-2.0
"""The feasibility report: its answers, its schema, its pages, and what changed between two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relaxgrad.bridge.errors import UserError
from relaxgrad.cli.main import main
from relaxgrad.coverage.audit.record import Verdict
from relaxgrad.reports.feasibility.collect import gather
from relaxgrad.reports.feasibility.diff import changes
from relaxgrad.reports.feasibility.html import html
from relaxgrad.reports.feasibility.markdown import markdown, short
from relaxgrad.reports.feasibility.schema import Answer, Finding, Report, read
from tests.reports.feasibility.records import LINE, crashes, falls_back, report, timed, trains
from tests.reports.html_page import needs_nothing_from_elsewhere, page_of


@pytest.fixture
def found(tmp_path: Path) -> Report:
    return report(tmp_path, [trains(), falls_back(), crashes()], [timed("mlp", 1.2), timed("qr", 0.8)])


def test_answers(found: Report) -> None:
    assert [m.answer for m in found.models] == [Answer.YES, Answer.PARTLY, Answer.NO]
    assert found.answer is Answer.SOME
    told, where = found.sentence.split(" Timed: ")
    assert told == (
        "2 of 3 models train on TVM with right gradients, 1 of them partly in PyTorch; a step runs at 1.10 times "
        "inductor's speed (2 timed, slower on 0) and 0.98 times eager's speed (2 timed, slower on 1) by geometric "
        "mean, the first step 4.0 times as soon as Inductor's."
    )
    assert where == f"mlp x 4x3; qr x 4x3; {found.machine['cpu']}, {found.machine['cores']} cores."
    assert found.models[1].missing == ["operators: 1 of 2 calls runs in ATen"]
    assert [short(m) for m in found.models] == [
        "mlp: yes",
        "qr: yes, partly in PyTorch; operators: 1 of 2 calls runs in ATen",
        "gpt: no: crash: killed by SIGSEGV",
    ]


def test_a_model_that_no_seed_settles_is_no_yes_and_no_wrong_numbers(tmp_path: Path) -> None:
    unsteady = trains("deep")
    unsteady.verdict, unsteady.reason = Verdict.ILL_CONDITIONED, "seed 0: 2 tensors off"
    found = report(tmp_path, [unsteady, trains()], [])
    assert [m.answer for m in found.models] == [Answer.UNDECIDED, Answer.YES]
    assert found.answer is Answer.SOME
    assert found.sentence == "1 of 2 models train on TVM with right gradients, 1 ill-conditioned."
    assert short(found.models[0]) == "deep: ill-conditioned: seed 0: 2 tensors off"


def test_all_or_none(tmp_path: Path) -> None:
    assert report(tmp_path / "a", [trains()], []).answer is Answer.YES
    assert report(tmp_path / "b", [crashes()], []).answer is Answer.NO
    assert report(tmp_path / "c", [trains(), falls_back()], []).answer is Answer.PARTLY
    assert report(tmp_path / "d", [trains(), crashes()], []).answer is Answer.SOME
    assert report(tmp_path / "e", [], []).answer is Answer.NO


def test_a_benchmark_that_finds_wrong_numbers_is_a_no(tmp_path: Path) -> None:
    bench = timed("mlp", 1.2)
    bench["candidates"]["relaxgrad"] |= {"status": "wrong", "reason": "gradient of w is off", "step": None}
    bench["ratios"] = {}
    found = report(tmp_path, [trains()], [bench])
    assert found.answer is Answer.NO
    assert found.models[0].reason == "wrong numbers in the benchmark: gradient of w is off"
    assert found.models[0].candidates["relaxgrad"].first is None
    assert found.sentence == "0 of 1 models train on TVM with right gradients."


def test_a_benchmark_that_could_not_start_says_why(tmp_path: Path) -> None:
    bench = {"model": "mlp", "reason": "the reference took too long", "candidates": {}, "ratios": {}}
    found = report(tmp_path, [trains()], [bench])
    assert found.answer is Answer.YES
    assert "the reference took too long" in markdown(found)
    assert "the reference took too long" in page_of(html(found)).text


def test_only_the_models_that_were_asked_for(found: Report, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    report(folder, [trains(), crashes()], [])
    assert [m.name for m in gather(folder, ["mlp"], [], None, []).models] == ["mlp"]


def test_what_is_written_is_read_again(found: Report, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(found.text())
    assert read(tmp_path) == found
    assert json.loads(found.text())["schema"] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[1]", "is no report: it has no schema; this relaxgrad reads schema 3"),
        ('{"sweep": "models"}', "is no report: it has no schema; this relaxgrad reads schema 3"),
        ('{"schema": 3}', "is no report of schema 3: created: Field required"),
        ('{"schema": 4, "new": []}', "is of schema 4; this relaxgrad reads schema 3, which `relaxgrad report"),
    ],
    ids=["cut", "deep", "list", "other", "empty", "newer"],
)
def test_another_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(UserError, match=message):
        read(tmp_path)
    with pytest.raises(UserError, match="cannot read"):
        read(tmp_path / "nothing")


def test_markdown_has_the_answer_first_and_each_reason_with_its_line(found: Report) -> None:
    text = markdown(found)
    assert text.splitlines()[2].startswith("**For some models.** 2 of 3 models")
    assert f"  - aten.linalg_qr.default: fallback at `{LINE}`" in text
    assert "No. crash: killed by SIGSEGV" in text
    assert "relaxgrad report mlp qr gpt -o out" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| `qr`") and "partly" in line]
    assert [cell.strip() for cell in row.strip("|").split("|")][4:10] == ["1", "0", "0", "1", "0", "4 of 4"]


def test_the_page_needs_no_network_and_its_links_lead_somewhere(found: Report) -> None:
    page = page_of(html(found))
    assert needs_nothing_from_elsewhere(page)
    assert page.links
    for expected in ("For some models.", "killed by SIGSEGV", LINE, "no converter", "1 right, 1 wrong"):
        assert expected in page.text


def test_what_a_model_is_called_is_text(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script>"
    record = falls_back(hostile)
    record.findings["operators"]["headline"] = hostile
    record.findings["operators"]["evidence"][0]["where"] = hostile
    text = html(report(tmp_path, [record], [timed(hostile, 1.0)]))
    assert hostile not in text
    assert hostile in page_of(text).text
    assert text.count("<script>") == 1


def test_a_report_without_times_has_no_charts_of_them(tmp_path: Path) -> None:
    found = report(tmp_path, [trains()], [])
    assert "Step time" not in html(found)
    assert "## Time" not in markdown(found)


def test_a_model_that_got_worse_is_named_first_with_the_cause(found: Report, tmp_path: Path) -> None:
    worse = trains()
    worse.verdict, worse.ops = falls_back().verdict, falls_back().ops
    worse.findings = falls_back().findings
    later = report(tmp_path / "later", [worse, falls_back(), trains("new")], [timed("mlp", 0.9), timed("qr", 0.82)])
    told = [str(change) for change in changes(found, later)]
    assert told == [
        "worse: mlp: yes became yes, partly in PyTorch: operators: 1 of 2 calls runs in ATen",
        "worse: mlp: operators: clear became worked around: 1 of 2 calls runs in ATen",
        f"worse: mlp: aten.linalg_qr.default runs as fallback at {LINE} (no converter)",
        "worse: mlp: 1.20 times eager's speed became 0.90",
        "other: gpt: is not in the new report",
        "other: new: is new: yes",
    ]
    assert not changes(found, found)


def test_what_is_not_known_any_more_is_not_better(tmp_path: Path) -> None:
    old = report(tmp_path / "old", [falls_back()], [])
    new = report(tmp_path / "new", [crashes("qr")], [])
    told = [str(change) for change in changes(old, new)]
    assert told == [
        "worse: qr: yes, partly in PyTorch became no: crash: killed by SIGSEGV",
        "worse: qr: 4 of 4 gradients right became 0 of 0",
    ]
    unmeasured = falls_back()
    unmeasured.findings["operators"]["level"] = "not measured"
    (change,) = changes(old, report(tmp_path / "un", [unmeasured], []))
    assert change.worse is None
    assert changes(old, old) == []


def test_what_changed_of_the_installation_is_told(found: Report) -> None:
    finding = Finding(blocker="API stability", level="clear", headline="all names are there")
    before = found.model_copy(update={"installation": [finding]})
    after = found.model_copy(update={"installation": [finding.model_copy(update={"level": "blocks"})]})
    assert [str(change) for change in changes(before, after)] == [
        "worse: API stability: clear became blocks: all names are there"
    ]


def test_the_command_says_what_got_worse(found: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = report(tmp_path / "later", [crashes("mlp"), falls_back(), crashes()], [])
    for folder, one in (("a", found), ("b", later)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "report.json").write_text(one.text())
    assert main(["report", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "worse: mlp: yes became no: crash: killed by SIGSEGV" in capsys.readouterr().out
    assert main(["report", "diff", str(tmp_path / "a"), str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out == "nothing changed\n"


def test_the_command_makes_all_three_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["report", "seed-example", "-o", str(out), "--against", "eager", "--rounds", "1"]
    assert main(arguments) == 0
    assert sorted(file.name for file in out.iterdir()) == [
        "audit.jsonl", "bench.json", "report.html", "report.json", "report.md",
    ]  # fmt: skip
    found = read(out)
    assert found.models[0].candidates["relaxgrad"].status == "timed"
    assert found.answer is Answer.YES
    assert "seed-example: yes" in capsys.readouterr().out
