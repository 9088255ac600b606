"""TVM's thread pool is set up to live beside torch's, and what the user has set stays."""

from __future__ import annotations

import os
import subprocess
import sys
from unittest import mock

import torch

from relaxgrad.bridge.threads import settle_pools

NAMES = ("TVM_THREAD_POOL_SPIN_COUNT", "TVM_BIND_THREADS", "TVM_NUM_THREADS")


def test_the_pool_gets_as_many_threads_as_torch_and_does_not_spin() -> None:
    with mock.patch.dict(os.environ):
        for name in NAMES:
            os.environ.pop(name, None)
        settle_pools()
        assert [os.environ[name] for name in NAMES] == ["0", "0", str(torch.get_num_threads())]


def test_what_the_user_has_set_stays() -> None:
    with mock.patch.dict(os.environ, dict.fromkeys(NAMES, "3")):
        settle_pools()
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
