"""Figures of the laboratory say what their tables say, drawn from tables small enough to read."""

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from analysis.palette import INK
from paper_figs import base, run, very_old_data_clip_share


def frame(keys, **columns):
    rows = pd.DataFrame(list(itertools.product(*keys.values())), columns=list(keys))
    return rows.assign(**{name: make(rows) for name, make in columns.items()})


def medians(ax):
    return [
        line.get_xdata()[0]
        for line in ax.lines
        if to_hex(line.get_color()) == INK and len(line.get_xdata()) == 1
    ]


def test_old_data_stand_below_fresh_ones_each_with_its_median():
    keys = {"recipe": ["grpo", "oapl"], "lag": [0, 256], "seed": range(9)}
    table = frame(
        keys, accuracy=lambda t: 0.9 - t["lag"] / 512 - 0.1 * (t["recipe"] == "grpo") + t["seed"] / 1e4
    )
    with run.style():
        (ax,) = base.draw("very-old-data", table).axes
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels == ["OAPL, lag 0", "GRPO, lag 0", "OAPL, lag 256", "GRPO, lag 256"]
    assert medians(ax) == pytest.approx([0.9004, 0.8004, 0.4004, 0.3004])


def test_clip_shares_are_drawn_of_grpo_and_m2po_alone():
    keys = {"recipe": ["grpo", "m2po", "oapl"], "lag": [0, 256], "seed": range(3)}
    table = frame(
        keys, accuracy=lambda t: 0.5, **{very_old_data_clip_share.SHARE: lambda t: 0.01 * (t["lag"] > 0)}
    )
    with run.style():
        (ax,) = base.draw("very-old-data-clip-share", table).axes
    assert [line.get_label() for line in ax.lines] == [
        "GRPO, lag 0",
        "GRPO, lag 256",
        "M2PO, lag 0",
        "M2PO, lag 256",
    ]


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
