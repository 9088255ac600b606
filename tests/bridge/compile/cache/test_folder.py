# SPDX-License-Identifier: Apache-2.0
"""The folder of compiled graphs: whole entries or none with concurrent writers; bounded; private to its owner."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relaxgrad.bridge.compile.cache import folder as cache_folder
from relaxgrad.bridge.compile.cache.folder import Folder
from relaxgrad.bridge.errors import UserError


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder, "_warned", False)
    for name in ("RELAXGRAD_CACHE_DIR", "RELAXGRAD_CACHE_SIZE", "RELAXGRAD_CACHE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "a" / "graphs")
    assert folder.prepare()
    return folder


def linking(content: bytes) -> Callable[[Path], None]:
    def link(path: Path) -> None:
        path.write_bytes(content)

    return link


def read(folder: Folder, name: str) -> str | None:
    with folder.reading(name) as text:
        return text


def test_what_was_written_is_read(folder: Folder) -> None:
    assert read(folder, "x") is None
    assert folder.write("x", "plan ü\n", linking(b"library"))
    assert read(folder, "x") == "plan ü\n"
    assert folder.entry("x").read_bytes().startswith(b"library")
    assert folder.write("x", "another", linking(b""))
    assert read(folder, "x") == "another"
    assert [p.name for p in folder.path.iterdir()] == ["x.so"]


def test_files_are_their_owners_alone(folder: Folder) -> None:
    before = os.umask(0)
    try:
        folder.write("x", "text", linking(b"library"))
        made = Folder(folder.path / "inner" / "graphs")
        made.prepare()
    finally:
        os.umask(before)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert made.path.stat().st_mode & 0o777 == 0o700
    assert made.path.parent.stat().st_mode & 0o777 == 0o700
    assert folder.entry("x").stat().st_mode & 0o077 == 0


def damage() -> dict[str, Callable[[bytes], bytes]]:
    return {
        "empty": lambda content: b"",
        "cut at its start": lambda content: content[:7],
        "cut at its end": lambda content: content[:-1],
        "longer": lambda content: content + b"\0",
        "one bit of the library": lambda content: bytes([content[0] ^ 1]) + content[1:],
        "one bit of the text": lambda content: content.replace(b"text", b"tezt"),
        "a length of another": lambda content: content[:-24] + (10**9).to_bytes(8, "little") + content[-16:],
        "zeros": lambda content: bytes(len(content)),
    }


@pytest.mark.parametrize("how", damage())
def test_what_is_not_whole_is_absent_and_removed(folder: Folder, how: str) -> None:
    folder.write("x", "text", linking(b"library"))
    path = folder.entry("x")
    changed = damage()[how](path.read_bytes())
    assert changed != path.read_bytes()
    path.write_bytes(changed)
    assert read(folder, "x") is None
    assert not path.exists()
    assert folder.write("x", "text", linking(b"library"))
    assert read(folder, "x") == "text"


def test_a_link_that_fails_leaves_nothing(folder: Folder) -> None:
    def fails(path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        folder.write("x", "text", fails)
    assert list(folder.path.iterdir()) == []


def test_a_file_that_is_replaced_while_it_is_read_does_not_count(folder: Folder) -> None:
    folder.write("x", "one", linking(b"1"))
    reading = folder.reading("x")
    assert reading.__enter__() == "one"
    folder.write("x", "two", linking(b"2"))
    with pytest.raises(OSError, match="replaced"):
        reading.__exit__(None, None, None)
    assert read(folder, "x") == "two"


def test_the_least_recently_used_go_first(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate("abcd"):
        folder.write(name, "text", linking(bytes(400_000)))
        os.utime(folder.entry(name), (1000 + number, 1000 + number))
    assert read(folder, "a") == "text"  # used just now
    monkeypatch.setenv("RELAXGRAD_CACHE_SIZE", "1")  # room for two
    folder.trim()
    assert [s.path.stem for s in folder.entries()] == ["d", "a"]
    folder.trim()
    assert len(folder.entries()) == 2


def test_an_entry_that_is_larger_than_the_limit_is_not_kept(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXGRAD_CACHE_SIZE", "0.1")
    assert not folder.write("x", "text", linking(bytes(200_000)))
    assert list(folder.path.iterdir()) == []


def test_what_dead_processes_left_is_removed(folder: Folder) -> None:
    for name, age in (("old", 2 * 3600), ("new", 10)):
        path = folder.path / f".unfinished-{name}.so"
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age, time.time() - age))
    assert folder.entries() == []
    folder.trim()
    assert {p.name for p in folder.path.iterdir()} - {".lock"} == {".unfinished-new.so"}


def test_trimming_never_waits_for_another_process(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    import filelock

    folder.write("x", "text", linking(bytes(100_000)))
    monkeypatch.setenv("RELAXGRAD_CACHE_SIZE", "0")
    with filelock.FileLock(folder.path / ".lock", is_singleton=False):
        start = time.monotonic()
        folder.trim()
        assert time.monotonic() - start < 1
        assert len(folder.entries()) == 1
    folder.trim()
    assert folder.entries() == []


def test_clear_leaves_foreign_files(folder: Folder) -> None:
    folder.write("x", "text", linking(b"library"))
    (folder.path / "notes.txt").write_text("mine")
    (removed,) = folder.clear()
    assert removed.path == folder.entry("x")
    assert [p.name for p in folder.path.iterdir()] == ["notes.txt"]


# ---- folders that are not used ----


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_may_write_into_is_refused_with_one_warning(folder: Folder, mode: int) -> None:
    folder.path.chmod(mode)
    with pytest.warns(RuntimeWarning, match="others may write into .*graphs") as caught:
        found = folder.usable(), folder.prepare()
    assert found == (False, False)
    assert len(caught) == 1


def test_a_folder_that_others_may_replace_is_refused(folder: Folder) -> None:
    folder.path.parent.chmod(0o1777)  # as /tmp: one user cannot move another's files
    assert folder.usable()
    folder.path.parent.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=f"others may write into {folder.path.parent};"):
        assert not folder.usable()


def test_a_file_that_others_may_write_is_not_read(folder: Folder) -> None:
    folder.write("x", "text", linking(b"library"))
    folder.entry("x").chmod(0o620)
    with pytest.warns(RuntimeWarning, match="others may write"):
        assert read(folder, "x") is None


def test_a_folder_of_someone_else_is_refused(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(folder.path, 12345, 12345)
    else:  # only root can give a folder away; another user can be someone else
        monkeypatch.setattr(os, "geteuid", lambda: folder.path.stat().st_uid + 1)
    with pytest.warns(RuntimeWarning, match="others may write"):
        assert not folder.usable()


def test_a_folder_that_cannot_be_made_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="cannot be made") as caught:
        made = [Folder(tmp_path / "file" / "graphs").prepare() for _ in range(2)]
    assert made == [False, False]
    assert len(caught) == 1


def test_a_read_only_folder_is_read_and_not_written(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("x", "text", linking(b"library"))
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # root may write anywhere
    with pytest.warns(RuntimeWarning, match="read-only"):
        assert not folder.prepare()
    assert read(folder, "x") == "text"


# ---- the environment ----


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder.location().parts[-2:] == ("relaxgrad", "graphs")
    monkeypatch.setenv("RELAXGRAD_CACHE_DIR", str(tmp_path / "own"))
    assert cache_folder.location() == tmp_path / "own" / "graphs"


def test_how_much_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder.limit() == 2**30
    monkeypatch.setenv("RELAXGRAD_CACHE_SIZE", "1.5")
    assert cache_folder.limit() == 3 * 2**19
    for wrong in ("much", "nan", "inf", "-1", ""):
        monkeypatch.setenv("RELAXGRAD_CACHE_SIZE", wrong)
        with pytest.raises(UserError, match="no number of MiB"):
            cache_folder.limit()


def test_it_is_on_until_it_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder.enabled()
    for value, expected in (("1", True), ("0", False), ("off", False), ("False", False)):
        monkeypatch.setenv("RELAXGRAD_CACHE", value)
        assert cache_folder.enabled() is expected


# ---- many processes ----

WRITER = """
import sys, warnings
from pathlib import Path
from relaxgrad.bridge.compile.cache.folder import Folder
folder, me = Folder(Path(sys.argv[1])), sys.argv[2]
for turn in range(60):
    name = f"entry{turn % 4}"
    text = f"{me} {turn} " * 500
    folder.write(name, text, lambda path: path.write_bytes(text.encode() * 40) and None)
    folder.trim()
    try:
        with folder.reading(f"entry{(turn + 1) % 4}") as found:
            if found is not None:
                words = found.split()
                assert found == f"{words[0]} {words[1]} " * 500
                print("read", words[0])
    except OSError:
        print("replaced")
"""


def test_processes_that_write_at_once_see_whole_entries_only(folder: Folder) -> None:
    environment = dict(os.environ) | {"RELAXGRAD_CACHE_SIZE": "0.6"}  # room for two of the four
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder.path), f"w{number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(3)
    ]
    said = [w.communicate(timeout=120) for w in writers]
    assert [w.returncode for w in writers] == [0, 0, 0], [s[1] for s in said]
    seen = {line for out, _ in said for line in out.split("\n") if line}
    assert {"read w0", "read w1", "read w2"} <= seen
    assert {p.suffix for p in folder.path.iterdir() if p.name != ".lock"} == {".so"}
    assert not [p for p in folder.path.iterdir() if p.name.startswith(".unfinished")]
    for stored in folder.entries():
        assert read(folder, stored.path.stem) is not None
