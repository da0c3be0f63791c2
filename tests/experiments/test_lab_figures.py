"""Figures of the laboratory say what their tables say, drawn from tables small enough to read."""

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from analysis.palette import INK
from paper_figs import base, reuse, run


def frame(keys, **columns):
    rows = pd.DataFrame(list(itertools.product(*keys.values())), columns=list(keys))
    return rows.assign(**{name: make(rows) for name, make in columns.items()})


def medians(ax):
    return [
        line.get_xdata()[0]
        for line in ax.lines
        if to_hex(line.get_color()) == INK and len(line.get_xdata()) == 1
    ]


def test_seeds_that_never_reach_the_level_stand_at_the_right_edge():
    args = {"grpo": "default", "remix": "passes=4"}
    table = frame({"recipe": list(args), "seed": range(9)}, **{reuse.LEVEL: lambda t: 1000.0 + t["seed"]})
    table = table.assign(recipe_args=table["recipe"].map(args))
    table.loc[table["recipe"] == "remix", reuse.LEVEL] = np.nan
    with run.style():
        (ax,) = base.draw("reuse", table).axes
    assert medians(ax) == pytest.approx([1004, 1.15 * 1008])


def test_a_sign_that_ranks_all_collapses_has_an_area_of_one():
    keys = {"recipe": list("abcd"), "lag": [0, 64], "learning_rate": [1e-3, 3e-3], "seed": range(2)}

    def lost(t):
        return 1.0 * ((t["lag"] == 64) & (t["recipe"] > "b"))

    def noise(t):
        return np.random.default_rng(0).normal(size=len(t))

    from paper_figs.ess_predicts_collapse import SIGNS

    table = frame(keys, collapsed=lost, collapse_step=lambda t: np.where(lost(t) > 0, 300.0, np.nan))
    table = table.assign(**{name: noise(table) for name in SIGNS}).assign(
        **{"log10 ess": -table["collapsed"]}
    )
    with run.style():
        left, right = base.draw("ess-predicts-collapse", table).axes
    shown = {text.get_position()[1]: text.get_text() for text in left.texts}
    assert shown[0] == "1.00"
    assert len(right.lines[0].get_xdata()) == int(table["collapsed"].sum())
