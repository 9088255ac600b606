# SPDX-License-Identifier: Apache-2.0
"""Attributes of other modules replaced for the time being, safe where several threads do it at once.

`unittest.mock.patch` restores what it found: of two threads whose scopes overlap, the one that ends last puts the
other's replacement back for good, and a thread outside of any scope sees replacements that are not meant for it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

_lock = threading.Lock()


class _Replaced:
    """A function that threads have replaced: each calls its own replacement, all others the original."""

    def __init__(self, original: Callable[..., Any]):
        self.original = original
        self.scopes = 0
        self._own = threading.local()

    @property
    def replacements(self) -> list[Callable[..., Any]]:
        """Those of this thread, the one in use last."""
        found: list[Callable[..., Any]] = self._own.__dict__.setdefault("replacements", [])
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.replacements
        return (own[-1] if own else self.original)(*args, **kwargs)


@contextlib.contextmanager
def replaced(owner: Any, **replacements: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Within the scope, and in this thread alone, functions of `owner` are what `replacements` make of the originals.

    Each takes the function that it replaces and returns the one to call. Scopes may nest, and overlap between threads.
    """
    with _lock:
        functions = {name: getattr(owner, name) for name in replacements}
        for name, function in functions.items():
            if not isinstance(function, _Replaced):
                functions[name] = _Replaced(function)
                setattr(owner, name, functions[name])
            functions[name].scopes += 1
    for name, make in replacements.items():
        functions[name].replacements.append(make(functions[name].original))
    try:
        yield
    finally:
        with _lock:
            for name, function in functions.items():
                function.replacements.pop()
                function.scopes -= 1
                if not function.scopes:
                    setattr(owner, name, function.original)


_held: dict[tuple[int, str], tuple[Any, list[list[Any]]]] = {}  # (id of the owner, name) -> (value before, open scopes)


@contextlib.contextmanager
def held(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Within the scope an attribute of `owner` has this value, in every thread: a value is read, and cannot be called.

    Of overlapping scopes the one entered last counts; the value from before comes back with the end of all.
    """
    key, own = (id(owner), name), [value]
    with _lock:
        before, scopes = _held.setdefault(key, (getattr(owner, name), []))
        scopes.append(own)
        setattr(owner, name, value)
    try:
        yield
    finally:
        with _lock:
            scopes[:] = [scope for scope in scopes if scope is not own]
            setattr(owner, name, scopes[-1][0] if scopes else before)
            if not scopes:
                del _held[key]
