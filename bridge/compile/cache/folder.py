# SPDX-License-Identifier: Apache-2.0
"""The folder of compiled graphs: one file an entry, safe with several processes at once, bounded in size.

An entry is a shared library with text after its end, which the loader ignores, and a footer: a checksum of both, the
length of the text, and a mark. One file is written beside its place and renamed into it, so that no reader sees half of
one; whatever is not whole fails its checksum and counts as absent.

Loading an entry runs code. So the folder is as trusted as the installation: it is made for its owner alone, and one
that others may write into is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import UserError

DEFAULT_MIB = 1024
SUFFIX = ".so"  # by which TVM knows a library

_MARK = b"relaxgrad graph\n"
_FOOTER = struct.Struct(f"<32sQ{len(_MARK)}s")
_UNFINISHED = ".unfinished-"
_ABANDONED = 3600.0  # seconds after which an unfinished file belongs to a process that died

_warned = False


def warn_once(message: str) -> None:
    """One warning a process: a cache that does not work costs time and nothing else."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"relaxgrad keeps no compiled graphs: {message}", RuntimeWarning, stacklevel=2)


def enabled() -> bool:
    """Whether compiled graphs are kept at all; RELAXGRAD_CACHE=0 turns it off."""
    return os.environ.get("RELAXGRAD_CACHE", "1").strip().lower() not in ("0", "off", "false", "no")


def location() -> Path:
    """The folder of this user's compiled graphs, whether it exists or not."""
    chosen = os.environ.get("RELAXGRAD_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute() / "graphs"
    import platformdirs

    return Path(platformdirs.user_cache_dir("relaxgrad", appauthor=False)) / "graphs"


def limit() -> int:
    """The most bytes that the folder may hold. Raises UserError for a RELAXGRAD_CACHE_SIZE that is no number of MiB."""
    text = os.environ.get("RELAXGRAD_CACHE_SIZE", str(DEFAULT_MIB))
    try:
        size = int(float(text) * 2**20)
        if size >= 0:
            return size
    except (ValueError, OverflowError):
        pass
    raise UserError(f"RELAXGRAD_CACHE_SIZE={text!r} is no number of MiB; take one as {DEFAULT_MIB}")


@dataclass(frozen=True)
class Stored:
    """One file of the folder."""

    path: Path
    size: int  # bytes
    used: float  # seconds since the epoch


class Folder:
    """The entries in one folder. No method raises for what the file system does, unless it says so."""

    def __init__(self, path: Path):
        self.path = path

    def usable(self) -> bool:
        """Whether entries may be loaded from here: the folder is there, and its owner alone may write into it."""
        try:
            found, above = self.path.stat(), self.path.parent.stat()
        except OSError:
            return False
        if not stat.S_ISDIR(found.st_mode):
            return False
        for folder, theirs in ((self.path, not _mine(found)), (self.path.parent, not _mine(above, sticky=True))):
            if theirs:
                warn_once(
                    f"others may write into {folder}; make it yours alone (chmod 700), or set RELAXGRAD_CACHE_DIR"
                )
                return False
        return True

    def prepare(self) -> bool:
        """Makes the folder where it is not there; returns whether entries may be written into it."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
        except OSError as error:
            warn_once(f"{self.path} cannot be made ({error.strerror})")
            return False
        if not self.usable():
            return False
        if not os.access(self.path, os.W_OK | os.X_OK):
            warn_once(f"{self.path} is read-only")
            return False
        return True

    def entry(self, name: str) -> Path:
        """Where an entry is, or would be."""
        return self.path / f"{name}{SUFFIX}"

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[str | None]:
        """The text of an entry, while its library is loaded from `entry(name)`; None where there is no whole one.

        A file that is not whole is removed. Raises OSError at the end where the file was replaced in the meantime: the
        library that was loaded may not belong to the text.
        """
        path = self.entry(name)
        try:
            file = open(path, "rb")  # noqa: SIM115  # closed below
        except OSError:
            yield None
            return
        with file:
            if not _mine(os.fstat(file.fileno())):
                warn_once(f"others may write into {path}; remove it (relaxgrad cache clear)")
                yield None
                return
            text = _whole(file.read())
            if text is None:
                with contextlib.suppress(OSError):
                    path.unlink()
            yield text
            if text is not None:
                if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    raise OSError(f"{path} was replaced")
                with contextlib.suppress(OSError):
                    os.utime(path)

    def write(self, name: str, text: str, link: Callable[[Path], None]) -> bool:
        """Puts an entry in its place: `link` writes the library to the path it gets. Returns whether it is there.

        Raises what `link` raises.
        """
        handle, temporary = tempfile.mkstemp(prefix=_UNFINISHED, suffix=SUFFIX, dir=self.path)
        os.close(handle)
        try:
            link(Path(temporary))
            content = Path(temporary).read_bytes()
            payload = text.encode()
            digest = hashlib.sha256(content + payload).digest()
            with open(temporary, "ab") as file:
                file.write(payload + _FOOTER.pack(digest, len(payload), _MARK))
                size = file.tell()
            if size > limit():
                return False
            os.chmod(temporary, 0o600)
            os.replace(temporary, self.entry(name))
            return True
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def entries(self) -> list[Stored]:
        """The entries, least recently used first."""
        found = [s for s in self._files() if not s.path.name.startswith(_UNFINISHED) and s.path.suffix == SUFFIX]
        return sorted(found, key=lambda s: s.used)

    def trim(self) -> None:
        """Removes the least recently used entries until the folder is within its limit, and what dead processes left.

        Where another process is at it, nothing is done.
        """
        with self._lock() as mine:
            if not mine:
                return
            for file in self._files():
                if file.path.name.startswith(_UNFINISHED) and time.time() - file.used > _ABANDONED:
                    _remove(file.path)
            entries = self.entries()
            size, most = sum(s.size for s in entries), limit()
            for stored in entries:
                if size <= most:
                    break
                _remove(stored.path)
                size -= stored.size

    def clear(self) -> list[Stored]:
        """Removes every entry and returns them. Raises OSError for one that cannot be removed."""
        entries = self.entries()
        for stored in entries:
            stored.path.unlink(missing_ok=True)
        for file in self._files():
            if file.path.name.startswith(_UNFINISHED):
                _remove(file.path)
        return entries

    def _files(self) -> list[Stored]:
        found: list[Stored] = []
        with contextlib.suppress(OSError), os.scandir(self.path) as listing:
            for item in listing:
                with contextlib.suppress(OSError):  # another process removed it
                    status = item.stat(follow_symlinks=False)
                    found.append(Stored(Path(item.path), status.st_size, status.st_mtime))
        return found

    @contextlib.contextmanager
    def _lock(self) -> Iterator[bool]:
        """Whether this process alone may remove entries, for the time being. Never waits."""
        import filelock

        lock = filelock.FileLock(self.path / ".lock", timeout=0)
        try:
            lock.acquire()
        except (filelock.Timeout, OSError):
            yield False
            return
        try:
            yield True
        finally:
            lock.release()


def _mine(found: os.stat_result, sticky: bool = False) -> bool:
    """Whether a file or folder is this user's (or root's), and no other user may write into it.

    `sticky`: others may where they cannot replace what is not theirs, as in /tmp.
    """
    if found.st_uid not in (os.geteuid(), 0):
        return False
    return not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or (sticky and bool(found.st_mode & stat.S_ISVTX))


def _whole(content: bytes) -> str | None:
    """The text of an entry whose checksum is right; None for anything else."""
    if len(content) < _FOOTER.size:
        return None
    digest, length, mark = _FOOTER.unpack(content[-_FOOTER.size :])
    end = len(content) - _FOOTER.size
    if mark != _MARK or length > end or hashlib.sha256(memoryview(content)[:end]).digest() != digest:
        return None
    try:
        return content[end - length : end].decode()
    except UnicodeDecodeError:
        return None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
