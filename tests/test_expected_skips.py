# SPDX-License-Identifier: Apache-2.0
"""Skips have a row in their table, and a prepared machine has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.expected_skips import EXPECTED_SKIPS, NEED, Lacking, skip


def test_every_kind_has_a_row_with_a_reason() -> None:
    assert set(EXPECTED_SKIPS) == set(Lacking)
    assert all(EXPECTED_SKIPS.values())


@pytest.mark.parametrize("lacking", Lacking)
def test_a_prepared_machine_fails_where_another_skips(lacking: Lacking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEED, "")
    with pytest.raises(pytest.skip.Exception, match=f"{lacking}: .* \\(gone\\)"):
        skip(lacking, "gone")
    monkeypatch.setenv(NEED, ",".join(Lacking))
    with pytest.raises(pytest.fail.Exception, match="gone"):
        skip(lacking, "gone")


def test_nothing_is_skipped_in_another_way() -> None:
    own = {"test_expected_skips.py", "expected_skips.py"}
    files = [path for path in Path(__file__).parent.rglob("*.py") if path.name not in own]
    assert len(files) > 50
    wrong = re.compile(r"pytest\.(skip|importorskip|mark\.skip|mark\.xfail|xfail)|unittest\.skip")
    assert [str(path) for path in files if wrong.search(path.read_text(encoding="utf-8"))] == []
