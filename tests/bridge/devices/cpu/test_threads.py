# SPDX-License-Identifier: Apache-2.0
"""Parallel loops run on the threads of torch's OpenMP; where they cannot, TVM's pool lives beside torch's."""

from __future__ import annotations

import os
import subprocess
import sys
from unittest import mock

import torch

from relaxgrad.bridge.devices.cpu.threads import configure_threads

NAMES = ("TVM_THREAD_POOL_SPIN_COUNT", "TVM_BIND_THREADS", "TVM_NUM_THREADS")


def test_the_pool_gets_as_many_threads_as_torch_and_does_not_spin() -> None:
    with mock.patch.dict(os.environ):
        for name in NAMES:
            os.environ.pop(name, None)
        configure_threads()
        assert [os.environ[name] for name in NAMES] == ["0", "0", str(torch.get_num_threads())]


def test_what_the_user_has_set_stays() -> None:
    with mock.patch.dict(os.environ, dict.fromkeys(NAMES, "3")):
        configure_threads()
        assert [os.environ[name] for name in NAMES] == ["3", "3", "3"]


def test_kernels_of_several_threads_are_right() -> None:
    """In a process of its own: this one runs on one thread."""
    program = (
        "import os, torch; torch.set_num_threads(2)\n"
        "def step(f, x, w):\n"
        "    w = w.detach().requires_grad_()\n"
        "    y = f(x, w)\n"
        "    return y.detach(), *torch.autograd.grad(y.square().sum(), w)\n"
        "plain = lambda x, w: torch.softmax(x @ w, -1).sum(0)\n"
        "f, x, w = torch.compile(plain, backend='relaxgrad'), torch.randn(512, 64), torch.randn(64, 256)\n"
        "exact, eager = step(plain, x.double(), w.double()), step(plain, x, w)\n"
        "for _ in range(20):\n"
        "    for seen, usual, right in zip(step(f, x, w), eager, exact):\n"
        "        assert (seen - right).abs().max() <= 4 * (usual - right).abs().max()\n"
        "print(os.environ['TVM_NUM_THREADS'])\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2"]


def _run(program: str, threads: int = 2) -> list[str]:
    """The words that a program prints in a process of its own, with torch on this many threads and without the cache.

    `joined` in it holds for each library whether its loops run on torch's threads.
    """
    start = (
        f"import os, torch; torch.set_num_threads({threads})\n"
        "from relaxgrad.bridge.backend import relaxgrad\n"
        "from relaxgrad.bridge.devices.cpu import openmp\n"
        "joined, join = [], openmp.join_openmp\n"
        "openmp.join_openmp = lambda path: joined.append(join(path))\n"
        "def threads(): return len(os.listdir('/proc/self/task'))\n"
        "def compiled(f): return torch.compile(f, backend=relaxgrad, options={'on_compile_error': 'raise'})\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in (*NAMES, "OMP_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", start + program], env={**environment, "RELAXGRAD_CACHE": "0"}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


_COUNTED = (
    "x = torch.randn(400, 400)\n"
    "f = compiled(lambda x: (x * 2).exp())\n"
    "f(x[:3, :3]); (x @ x).exp()\n"
    "before = threads()\n"
    "for _ in range(5): assert torch.allclose(f(x), (x * 2).exp())\n"
    "print(threads() - before, *joined[1:])\n"  # the first has no parallel loop
)


def test_parallel_loops_run_on_torchs_threads() -> None:
    assert _run(_COUNTED) == ["0", "True"], "a pool of TVM's own was started, or none was joined"


def test_where_torch_has_no_such_openmp_tvm_has_its_own_pool() -> None:
    more, *joined = _run("openmp._openmp = lambda: None\n" + _COUNTED, threads=3)
    assert int(more) > 0
    assert joined == ["False"]


def test_loops_follow_the_number_of_threads() -> None:
    """Also down: of seven threads two are used again, and what the others did is done by them."""
    program = (
        "f, x = compiled(lambda x: x.exp().sum(1)), torch.randn(301, 211)\n"
        "for n in (1, 3, 7, 2):\n"
        "    torch.set_num_threads(n)\n"
        "    before = threads()\n"
        "    assert torch.allclose(f(x), x.exp().sum(1))\n"
        "    print(threads() - before)\n"
    )
    seen = _run(program, threads=1)
    assert int(seen[1]) >= 2, "three threads are two more than one"
    assert int(seen[2]) >= 4


def test_a_thread_that_did_nothing_before_gets_as_many_as_torch() -> None:
    program = (
        "import threading\n"
        "f, x = compiled(lambda x: x.exp().sum(1)), torch.randn(301, 211)\n"
        "f(x)\n"
        "before, found = threads(), []\n"
        "other = threading.Thread(target=lambda: (f(x), found.append(threads())))\n"
        "other.start(); other.join()\n"
        "print(found[0] - before)\n"
    )
    assert _run(program, threads=1) == ["1"], "the thread itself and no team"


def test_an_error_is_raised_where_it_was_started() -> None:
    """In the piece of every thread, the starting one's and another's."""
    program = (
        "f = compiled(lambda a, b: a // b)\n"
        "a, b = torch.full((300, 300), 7), torch.ones(300, 300, dtype=torch.int64)\n"
        "for place in (0, -1):\n"
        "    b[place, place] = 0\n"
        "    try:\n"
        "        f(a, b)\n"
        "    except RuntimeError as error:\n"
        "        print(error)\n"
        "    b[place, place] = 1\n"
        "    assert torch.equal(f(a, b), a)\n"
        "print(*joined)\n"
    )
    assert _run(program) == ["ZeroDivisionError", "ZeroDivisionError", "True"]
