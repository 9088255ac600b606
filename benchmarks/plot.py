# SPDX-License-Identifier: Apache-2.0
"""The plot of a run: a step's time against eager's and Inductor's, model by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness.records import check_writable

from .names import RELAXGRAD

FORMATS = (".svg", ".png")


def check_plot(path: Path) -> None:
    """Raises UserError when `path` is no plot's name, cannot be written, or matplotlib is not there."""
    if path.suffix not in FORMATS:
        raise UserError(f"--plot {path}: give a name that ends in {' or '.join(FORMATS)}")
    check_writable(path)
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UserError(
            "--plot needs matplotlib, which is not there; install it: pip install relaxgrad[plot]"
        ) from error


def plot(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Writes a bar for each candidate of each model: its step's time over relaxgrad's, with the spread of the rounds.

    `records` as JSON; models that were not timed are left out. Raises UserError where none was.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    timed = [record for record in records if record["ratios"]]
    if not timed:
        raise UserError(f"nothing to plot in {path}: no model was timed against a baseline")
    names = list(dict.fromkeys(name for record in timed for name in record["ratios"]))
    several = len({record["malloc"] for record in timed}) > 1
    labels = [f"{r['model']}, {r['malloc']}" if several else r["model"] for r in timed]
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + (0.25 + 0.2 * len(names)) * len(timed)), layout="constrained")
    height = 0.8 / len(names)
    for index, name in enumerate(names):
        rows = [(i, record["ratios"][name]) for i, record in enumerate(timed) if name in record["ratios"]]
        axes.barh(
            [i + (index - (len(names) - 1) / 2) * height for i, _ in rows],
            [ratio["median"] for _, ratio in rows],
            height,
            xerr=[(ratio["spread"] or 0.0) / 2 for _, ratio in rows],
            label=name,
        )
    axes.axvline(1.0, color="black", linewidth=1, label=RELAXGRAD)
    axes.set_yticks(range(len(timed)), labels)
    axes.invert_yaxis()
    axes.set_xlabel(f"time of a step over {RELAXGRAD}'s (above 1: {RELAXGRAD} is faster)")
    axes.set_title(
        timed[0]["protocol"] if not several else timed[0]["protocol"].rpartition(";")[0], fontsize=8, wrap=True
    )
    figure.legend(loc="outside lower center", ncols=len(names) + 1)
    figure.savefig(path)
    pyplot.close(figure)
