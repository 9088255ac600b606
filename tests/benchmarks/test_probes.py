# SPDX-License-Identifier: Apache-2.0
"""What Inductor finds out about a machine is found out once in a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxgrad.benchmarks.record import Settings
from relaxgrad.benchmarks.run import bench_model


@pytest.mark.slow
def test_the_second_process_compiles_no_probe_and_still_the_model(tmp_path: Path) -> None:
    """Of a run of Inductor: with caches off, what it compiles for a model leaves nothing in the shared folder."""
    shared = tmp_path / "shared"
    settings = Settings(("inductor",), rounds=1, warm_up=0)

    def compiled() -> dict[str, int]:
        record = bench_model("seed-example", settings, start_up=False, probes=shared)
        found = record.candidates["inductor"]
        assert found.status == "timed", found.reason
        return {str(path): path.stat().st_mtime_ns for path in shared.rglob("*.so")}

    first = compiled()
    assert first
    assert compiled() == first  # neither a probe again nor a kernel of the model
