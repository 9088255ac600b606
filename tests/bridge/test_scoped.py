# SPDX-License-Identifier: Apache-2.0
"""Attributes replaced for the time being: by one thread, nested, and by two whose scopes overlap."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from relaxgrad.bridge.scoped import held, replaced


def original(x: int) -> int:
    return x


def test_a_replacement_knows_the_original_and_ends_with_its_scope() -> None:
    owner = SimpleNamespace(f=original)
    with replaced(owner, f=lambda f: lambda x: f(x) + 1):
        assert owner.f(1) == 2
        with replaced(owner, f=lambda f: lambda x: f(x) * 10):
            assert owner.f(1) == 10
        assert owner.f(1) == 2
    assert owner.f is original
    with pytest.raises(ZeroDivisionError), replaced(owner, f=lambda f: lambda x: f(x) + 1):
        raise ZeroDivisionError
    assert owner.f is original


def test_scopes_of_two_threads_overlap() -> None:
    """The first to enter is the first to leave: a mock would leave the second's replacement behind."""
    owner = SimpleNamespace(f=original, flag=False)
    inside, leave = threading.Event(), threading.Event()
    seen: list[int] = []

    def second() -> None:
        seen.append(owner.f(1))  # outside of any scope of its own
        with replaced(owner, f=lambda f: lambda x: f(x) + 100), held(owner, "flag", True):
            inside.set()
            leave.wait()
            seen.append(owner.f(1))

    thread = threading.Thread(target=second)
    with replaced(owner, f=lambda f: lambda x: f(x) + 1), held(owner, "flag", True):
        thread.start()
        inside.wait()
        assert owner.f(1) == 2
    assert owner.f(1) == 1
    assert owner.flag
    leave.set()
    thread.join()
    assert seen == [1, 101]
    assert owner.f is original
    assert not owner.flag


def test_a_held_value_comes_back_after_an_error_in_a_nested_scope() -> None:
    owner = SimpleNamespace(flag="before")
    with held(owner, "flag", "outer"):
        with pytest.raises(ZeroDivisionError), held(owner, "flag", "inner"):
            raise ZeroDivisionError
        assert owner.flag == "outer"
    assert owner.flag == "before"
