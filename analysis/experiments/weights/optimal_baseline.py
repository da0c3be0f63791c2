"""The variance of a gradient estimate over its baseline, enumerated and by formula."""

import numpy as np
import pandas as pd

from analysis.experiments.weights.bias_variance import RATIOS, SPLIT_DRIFT, about, bench
from analysis.lab import Experiment, Plot
from analysis.tables.committed import Table

NAME = "optimal-baseline"
BASELINE_RATIOS = ("token", "prefix", "sequence", "geometric")


def optimal_baseline() -> Table:
    """Return enumerated variance and least variance + (b - b*)^2 curvature, per ratio and b, on one tree."""
    from testbed.exact.gradient_report import gradient_report, optimal_baselines

    one = bench(0, SPLIT_DRIFT)
    values = (float(one.tree.value(one.mu_SA)), float(one.tree.value(one.pi_SA)))
    rows = []
    for ratio in BASELINE_RATIOS:
        objective = RATIOS[ratio]
        best = optimal_baselines(one, objective)
        least = gradient_report(objective, one, signal="R-b", baseline=best.scalar).variance
        for b in np.round(np.linspace(-0.4, 1.2, 33), 9):
            found = gradient_report(objective, one, signal="R-b", baseline=float(b))
            formula = least + (b - best.scalar) ** 2 * best.curvature
            rows.append((ratio, b, found.variance, formula, best.scalar, least, found.relative_bias, *values))
    columns = ["ratio", "b", "variance", "formula", "best", "least", "relative_bias", "value_mu", "value_pi"]
    frame = pd.DataFrame(rows, columns=columns)
    frame.loc[frame["relative_bias"] < 1e-12, "relative_bias"] = 0.0
    return Table.of(NAME, frame, {**about("R - b"), "trees": 1, "drift": SPLIT_DRIFT})


EXPERIMENT = Experiment(
    NAME,
    question="Which constant baseline has the least variance off-policy, and what does another one cost?",
    source="Greensmith, Bartlett & Baxter (2004), off-policy form",
    compute=optimal_baseline,
    keys=("ratio", "b"),
    metrics=("variance", "formula", "best", "least", "relative_bias", "value_mu", "value_pi"),
    figure=Plot(
        "curves by arm",
        x="b: baseline b",
        y="variance: tr Cov g",
        arm=("ratio",),
        also=({"y": "relative_bias: relative bias"},),
    ),
)
