# SPDX-License-Identifier: Apache-2.0
"""Strides of results: eager's in the graph for known kinds, and over PyTorch's operator database (slow)."""

from __future__ import annotations

import pytest

from relaxgrad.coverage.sweeps import strides

#: Ops that torch's shape functions or decompositions lay out otherwise than eager.
KNOWN = (
    "copysign", "floor_divide", "div.floor_rounding", "addr", "roll", "nn.functional.channel_shuffle",
    "nn.functional.max_unpool2d", "ldexp", "logaddexp", "logical_and", "heaviside", "xlogy", "special.xlog1py",
    "select_scatter", "nn.functional.pad.reflect", "native_dropout_backward", "masked_fill", "fft.fftshift",
)  # fmt: skip


def test_known_kinds_have_eagers_strides_in_the_graph() -> None:
    found = strides.survey(KNOWN, ("fake", "traced"), samples=3)
    assert found.entries == set(KNOWN)
    assert {d.entry for d in found.differences if d.way == "traced"} == set()
    assert {d.entry for d in found.differences if d.way == "fake"}  # the comparison sees what torch gets wrong


def test_a_result_of_the_backend_has_eagers_strides() -> None:
    found = strides.survey(("nn.functional.channel_shuffle", "logical_xor"), ("compiled",), samples=1)
    assert found.calls > 4
    assert found.differences == []
    assert not found.not_run


@pytest.mark.slow
def test_the_operator_database_has_eagers_strides_in_the_graph() -> None:
    found = strides.survey(None, ("traced",), samples=2)
    print(found)
    table = strides.expected()
    assert len(found.entries) > 600
    seen = {(d.way, d.entry) for d in found.differences}
    assert seen - table.keys() == set()
    assert table.keys() - seen == set(), "these agree now: take them out of coverage/sweeps/expected_strides.tsv"
