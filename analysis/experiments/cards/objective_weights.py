"""The atlas of objectives as a table: one row per point of a curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from analysis.lab import Experiment, Frame
from analysis.tables.committed import Table

if TYPE_CHECKING:
    from testbed.inspection.atlas import Curve

NAME = "objective-weights"
COLUMNS = ("family", "objective", "axis", "advantage", "log_ratio", "weight", "on_policy")
CURVE = ["objective", "axis", "advantage"]
"""Columns that identify one curve."""


def frame_of(curves: Sequence[Curve]) -> Frame:
    """Return the curves in long format; on_policy is 1 at log-ratio 0 and 0 elsewhere."""
    rows = [
        (c.family, c.objective, c.axis, int(c.advantage), float(x), float(w), int(x == 0))
        for c in curves
        for x, w in zip(c.log_ratio, c.weight, strict=True)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def table_of(curves: Sequence[Curve]) -> Table:
    """Return the table from which the atlas is drawn."""
    names = {curve.objective for curve in curves}
    about = {
        "objectives": sum("@" not in name for name in names),
        "variants": sum("@" in name for name in names),
        "probe": "four answers of one token, A = +1, +1, -1, -1; one has moved, three are on-policy",
    }
    return Table.of(NAME, frame_of(curves), about)


def atlas_table() -> Table:
    """Return the table of every registered objective."""
    from testbed.inspection import atlas

    return table_of(atlas.atlas())


EXPERIMENT = Experiment(
    question="Which weight does each objective give a token, as its log-ratio moves?",
    source="papers and repositories of the objectives, in docs/objectives.md",
    compute=atlas_table,
    # Where a curve jumps, one log-ratio has two weights.
    keys=("family", "objective", "axis", "advantage", "log_ratio", "weight"),
    metrics=("on_policy",),
    figure="objectives-*",
)
