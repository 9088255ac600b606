# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad audit MODEL...`: what it shows of a model, and one line for each way to call it wrongly."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.cli.main import main
from relaxgrad.coverage.audit import many
from relaxgrad.coverage.audit.auditor import AuditOptions
from relaxgrad.coverage.audit.record import AuditRecord, Cause, Verdict
from relaxgrad.coverage.zoo import OPTIONAL, TIMED, ZOO

USERS = """
    import torch
    from torch import nn

    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x):
            h = self.linear(x)
            self.seen.add_(h.detach().mean(0))  # writes in place
            print(end="")  # breaks the graph
            return torch.linalg.qr(h).R.square().mean() + h.mean()  # has no lowering

    def mine():
        return Mine(), (torch.randn(8, 8),)
"""


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(USERS))
    return path


def test_a_dry_run_points_to_the_three_lines(users: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(users), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for says, code in (
        ("aten.linalg_qr.default: fallback", "# has no lowering"),
        ("graph break", "# breaks the graph"),
        ("seen is written in place", "# writes in place"),
    ):
        (line,) = [line for line in lines if line.strip().startswith(says)]
        number = 1 + [code in text for text in users.read_text().splitlines()].index(True)
        assert f"{users}:{number} (" in line
        assert code in line
    assert lines[0].startswith(f"{users}:mine: not run; 72 parameters; calls: ")
    assert "operators: worked around: 2 of " in "\n".join(lines)


@pytest.mark.slow
def test_an_audit_of_the_same_model_trains_it(users: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(users), "-o", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "mine: trains, partly in PyTorch;" in out
    assert "the AdamW step compiled, state saved and loaded" in out
    assert "TVM's own importer: " in out
    (record,) = many.read_audit(tmp_path / many.FILE)[1]
    assert set(record["findings"]) == {"operators", "dynamic shapes", "in-place and optimizer state"}
    numbers = record["findings"]["operators"]["numbers"]
    assert numbers["seconds_by_kind"]["fallback"] > 0
    assert numbers["upstream_importer"]["graphs"] == len(record["upstream"])


def test_a_model_that_is_on_another_device_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "far.py"
    path.write_text("import torch\ndef make():\n    return torch.nn.Linear(3, 3, device='meta'), torch.randn(2, 3)\n")
    assert main(["audit", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if "is on meta" in line]
    assert lines == [f"relaxgrad: {path}:make: a tensor is on meta; return module and inputs on the CPU"]


def test_the_zoo_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--zoo", "all", "--list"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names == [name for name, entry in ZOO.items() if entry.group not in (*OPTIONAL, *TIMED)]
    assert len(names) >= 60


def planted(monkeypatch: pytest.MonkeyPatch, *records: AuditRecord) -> list[tuple[str, AuditOptions]]:
    asked: list[tuple[str, AuditOptions]] = []

    def audit(model: str, options: AuditOptions, listen: Any = None) -> AuditRecord:
        asked.append((model, options))
        return next(record for record in records if record.model == model)

    monkeypatch.setattr(many, "audit_model", audit)
    monkeypatch.setattr(many, "audit_installation", lambda _: [])
    return asked


def test_many_models_get_a_line_each_and_a_total(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = AuditRecord("gpt2", cause=Cause.CRASH, reason="the worker process was killed by SIGSEGV")
    asked = planted(monkeypatch, AuditRecord("mlp", Verdict.YES), bad)
    assert (
        main(["audit", "mlp", "gpt2", "--no-upstream", "--memory-limit", "2", "--time-limit", "9", "--seed", "3"]) == 1
    )
    out, err = capsys.readouterr()
    assert "gpt2: does not train, crash: the worker process was killed by SIGSEGV" in err
    assert "2 models: 1 trains, 1 does not train" in out
    options = asked[0][1]
    assert (options.memory_limit, options.time_limit, options.upstream, options.seed) == (2 << 30, 9.0, False, 3)


def test_a_list_of_factories_is_a_list_of_models(
    users: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = users.parent / "models.toml"
    table.write_text('[models]\nmine = "mine.py:mine"\nsmall = "mlp"\n')
    asked = planted(monkeypatch, AuditRecord(f"{users}:mine", Verdict.YES), AuditRecord("mlp", Verdict.YES))
    assert main(["audit", str(table)]) == 0
    assert [model for model, _ in asked] == [f"{users}:mine", "mlp"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "say what to audit: MODEL..., --zoo all"),
        (["no-such-model"], "no-such-model"),
        (["--zoo", "txt"], "no part of the zoo is called 'txt'"),
        (["absent.py"], "cannot read absent.py"),
        (["absent.toml"], "cannot read absent.toml"),
        (["mlp", "--resume"], "name it with -o DIR"),
    ],
)
def test_bad_usage_gets_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_a_file_of_no_factory_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.py").write_text("def f(x): return x\n")
    (tmp_path / "empty.toml").write_text("[model]\na = 1\n")
    assert main(["audit", str(tmp_path / "empty.py")]) == 2
    assert "has no factory" in capsys.readouterr().err
    assert main(["audit", str(tmp_path / "empty.toml")]) == 2
    assert "no table [models]" in capsys.readouterr().err


def test_audits_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    planted(monkeypatch, AuditRecord("mlp", Verdict.YES), AuditRecord("gpt2", Verdict.YES))
    assert main(["audit", "mlp", "-o", str(tmp_path / "a")]) == 0
    assert main(["audit", "gpt2", "-o", str(tmp_path / "b")]) == 0
    merged = tmp_path / "merged.jsonl"
    assert main(["report", "merge", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(merged)]) == 0
    assert "2 models of 2 audits" in capsys.readouterr().out
    assert [r["model"] for r in many.read_audit(merged)[1]] == ["mlp", "gpt2"]
    assert main(["report", "merge", str(tmp_path / "c"), "-o", str(merged)]) == 2
