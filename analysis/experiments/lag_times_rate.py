"""Claims about the product of lag and learning rate, at equal learning rate times steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.claims import Evidence, exact
from analysis.comparisons import arms, at_floor, must_exceed, must_vanish, short_of
from analysis.experiment import Experiment
from analysis.plot import Plot
from testbed.config.run import Run, grid

SOURCE = (
    "arXiv:2607.01083: staleness costs what lag times learning rate says; read as curves that fall together"
)
MARGIN = 0.05
"""Mean value along the curve. Set before the sweep was run."""
REWARD = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
START = np.array([0.0, 0.0, 0.0, 0.0, -4.0])
"""Logits at the start: the action that pays is rare."""
MEAN = "mean exact/value"

TREE = Run(task="tree", recipe="reinforce", prompts=64, group=8)
RATES = (0.75, 1.5, 3.0)
PRODUCTS = (0, 12, 24, 48, 96, 192)
"""Lag times learning rate."""
HORIZON = 300
"""Learning rate times steps: every cell travels as far."""


def cells() -> tuple[Run, ...]:
    """REINFORCE at six products of lag and learning rate, each at three rates with as much time."""
    found: list[Run] = []
    for rate in RATES:
        steps = round(HORIZON / rate)
        run = replace(TREE, learning_rate=rate, steps=steps, log_every=steps // 20)
        found += grid(run, lag=[round(product / rate) for product in PRODUCTS], seed=range(10, 18))
    return tuple(found)


EXPERIMENT = Experiment(
    "lag-times-rate",
    question="Is it lag times learning rate that counts?",
    source="arXiv:2607.01083: stale gradients cost what lag times learning rate says",
    differs="REINFORCE on a token tree, read as curves against learning rate times steps",
    cells=cells,
    keys=("learning_rate", "lag", "seed"),
    metrics=("exact/value", "mean exact/value", "min exact/ess_kish_sequence"),
    margins={"mean value along the curve that counts as equal": MARGIN},
    figure=Plot(
        "final by dial",
        x="lag",
        y=MEAN,
        arm=("learning_rate",),
        x_label="lag (optimizer steps)",
        y_label="mean exact value",
        log="x",
    ),
)


@EXPERIMENT.claim(
    "only-lag-times-rate-counts-as-rates-fall",
    source=f"{SOURCE}; limit derived: theta' = g(theta(t), theta(t - product)), a delay equation",
    kind="exact",
    statement=(
        "With exact gradients on data of a fixed lag, value against rate times step depends on lag and rate "
        "only through their product, up to a difference that is first order in the rate: it halves with it."
    ),
)
def delay_equation() -> Evidence:
    """Return distances from 2 of the ratio of successive differences, per product of lag and rate."""
    gaps, spread = [], []
    for product in (0.0, 40.0, 160.0):
        curves = [_curve(rate, round(product / rate)) for rate in (0.4, 0.2, 0.1, 0.05)]
        apart = [float(np.abs(a - b).max()) for a, b in pairwise(curves)]
        gaps += [abs(a / b - 2.0) for a, b in pairwise(apart)]
        spread.append((apart[-1], curves[-1]))
    between = min(float(np.abs(a[1] - b[1]).max()) for a, b in pairwise(spread))
    gaps.append(short_of(between, 20 * max(found[0] for found in spread)))
    note = (
        f"distance of the ratio from 2; at rate 0.05 curves of one product are "
        f"{max(found[0] for found in spread):.2g} apart, those of two products {between:.2g}"
    )
    return exact(gaps, 0.1, note)


def _curve(rate: float, lag: int, horizon: float = 320.0, points: int = 40) -> NDArray[np.float64]:
    """Return J at equal distances in rate * step of REINFORCE: pi_t learns from data of pi_(t-lag)."""
    steps, past = round(horizon / rate), [START]
    for _ in range(steps):
        theta_A, old_A = past[-1], past[max(len(past) - 1 - lag, 0)]
        mu_A, pi_A = (np.exp(x_A) / np.exp(x_A).sum() for x_A in (old_A, theta_A))
        # E_mu (R - V_mu) grad log pi = mu (R - V_mu) less pi times its sum, which is 0.
        pushed_A = mu_A * (REWARD - mu_A @ REWARD)
        past.append(theta_A + rate * (pushed_A - pi_A * pushed_A.sum()))
    every = steps // points
    law = np.exp(np.array(past[::every]))
    value: NDArray[np.float64] = (law @ REWARD) / law.sum(-1)
    return value


@EXPERIMENT.claim(
    "curves-fall-together-at-equal-lag-times-rate",
    source=SOURCE,
    kind="statistical",
    statement=(
        "REINFORCE on a token tree with three rates, four-fold apart, at six equal products of lag and rate: "
        "the mean value along the curve differs by less than 0.05 between rates, at every product."
    ),
)
def together(table: pd.DataFrame) -> Evidence:
    """Return the equivalence evidence, paired by seed, a group per product and pair of neighboring rates."""
    product = (table["learning_rate"] * table["lag"]).rename("product")
    value = table.pivot_table(index=[product, "seed"], columns="learning_rate", values=MEAN)
    rates = sorted(value.columns)
    differ = {
        f"rate {a:g} and {b:g}": value[b] - value[a] for a, b in (*pairwise(rates), (rates[0], rates[-1]))
    }
    pairs = {
        f"product {level:g}, {name}": x_N.to_numpy()
        for name, both_N in differ.items()
        for level, x_N in both_N.groupby(level="product")
    }
    largest = max(abs(float(x_N.mean())) for x_N in pairs.values())
    reach = value.mean(axis=1).groupby(level="product").mean()
    note = (
        f"0.05 less the difference between rates, at most {largest:.3f}; over products the mean value goes "
        f"from {reach.max():.3f} to {reach.min():.3f}"
    )
    floored = [
        f"product {level:g}"
        for level, rows in value.groupby(level="product")
        if at_floor([arm.dropna() for _, arm in rows.items()], MARGIN)
    ]
    return must_vanish(pairs, MARGIN, note, floored)


@EXPERIMENT.claim(
    "equal-lag-costs-more-at-a-higher-rate",
    source=SOURCE,
    kind="statistical",
    statement="At a lag of 32 steps the highest rate has a lower mean value along the curve than the lowest.",
)
def equal_lag(table: pd.DataFrame) -> Evidence:
    """Return the mean over seeds of the difference of mean values at lag 32."""
    low, high = (float(rate) for rate in (table["learning_rate"].min(), table["learning_rate"].max()))
    value = arms(table, MEAN, {f"{rate:g}": {"lag": 32, "learning_rate": rate} for rate in (low, high)})
    slow, fast = value[f"{low:g}"], value[f"{high:g}"]
    note = f"rate {low:g} minus rate {high:g}: {slow.mean():.3f} against {fast.mean():.3f}"
    return must_exceed(slow - fast, 0.0, note)
