"""Tables of exact gradients on random token trees: bias and variance along drift, bias split, baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.load import Table

if TYPE_CHECKING:
    from testbed.exact.report import Bench

BIAS_VARIANCE, BIAS_SPLIT, BASELINE = "bias-variance", "bias-split", "optimal-baseline"
VOCABULARY, LENGTH = 4, 4
TREES = 16
DRIFTS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5)
"""Standard deviation of the step from mu's to pi's logits; mu's own are standard normal."""
SPLIT_DRIFT = 0.5
RATIOS = {
    "none": "ratio:none",
    "token": "ratio:token",
    "prefix": "ratio:prefix",
    "suffix": "ratio:suffix",
    "sequence": "ratio:sequence",
    "min-prefix": "ratio:min_prefix",
    "geometric": "ratio:geometric",
    "clipped token": "ppo_clip",
}
OBJECTIVES = (
    "reinforce",
    "ratio:token",
    "ppo_clip",
    "cispo",
    "m2po",
    "sapo",
    "ratio:prefix",
    "ctpo",
    "minpro",
    "ratio:suffix",
    "gspo@pipelinerl",
    "topr",
    "vespo",
    "importance_reinforce",
    "ratio:sequence",
)
BASELINE_RATIOS = ("token", "prefix", "sequence", "geometric")


def tables() -> dict[str, Table]:
    """Return the three tables by name, in about half a minute."""
    return {BIAS_VARIANCE: bias_variance(), BIAS_SPLIT: bias_split(), BASELINE: optimal_baseline()}


def bench(seed: int, drift: float) -> Bench:
    """Return the seed-th tree of 4 tokens, 4 of them, with the policies of a drift."""
    from testbed.exact.report import Bench
    from testbed.exact.tree import random_policies, random_tree

    tree = random_tree(VOCABULARY, LENGTH, seed)
    return Bench(tree, *random_policies(tree, drift, seed))


def bias_variance() -> Table:
    """Return relative bias and deviation per ratio and drift: median and quartiles over trees."""
    from testbed.exact.report import gradient_report

    rows = []
    for drift in DRIFTS:
        benches = [bench(seed, drift) for seed in range(TREES)]
        for ratio, objective in RATIOS.items():
            found = [
                gradient_report(objective, b, signal="R-b", baseline=float(b.tree.value(b.mu_SA)))
                for b in benches
            ]
            bias = np.quantile([each.relative_bias for each in found], (0.25, 0.5, 0.75))
            deviation = np.quantile([each.relative_deviation for each in found], (0.25, 0.5, 0.75))
            # Exact zeros come out as rounding; a log axis must not show it.
            rows.append((ratio, drift, *np.where(bias < 1e-12, 0.0, bias), *deviation))
    names = [f"{value}{end}" for value in ("bias", "deviation") for end in ("_low", "", "_high")]
    frame = pd.DataFrame(rows, columns=["ratio", "drift", *names])
    return Table.of(BIAS_VARIANCE, frame, _about("R - J(mu)") | {"drifts": list(DRIFTS)})


def bias_split() -> Table:
    """Return the mean over trees of the signed shares of the bias, per objective, at SPLIT_DRIFT."""
    from testbed.exact.report import gradient_report

    benches = [bench(seed, SPLIT_DRIFT) for seed in range(TREES)]
    rows = []
    for objective in OBJECTIVES:
        found = [
            gradient_report(objective, b, signal="R-b", baseline=float(b.tree.value(b.mu_SA))).row()
            for b in benches
        ]
        names = ("bias_state", "bias_suffix", "bias_clipping", "relative_bias", "relative_deviation")
        means = [float(np.mean([row[name] for row in found])) for name in names]
        rows.append((objective, *[0.0 if abs(value) < 1e-12 else value for value in means]))
    frame = pd.DataFrame(rows, columns=["objective", *names])
    return Table.of(BIAS_SPLIT, frame, _about("R - J(mu)") | {"drift": SPLIT_DRIFT})


def optimal_baseline() -> Table:
    """Return enumerated variance and least variance + (b - b*)^2 curvature, per ratio and b, on one tree."""
    from testbed.exact.report import gradient_report, optimal_baselines

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
    return Table.of(BASELINE, frame, {**_about("R - b"), "trees": 1, "drift": SPLIT_DRIFT})


def _about(signal: str) -> dict[str, object]:
    tree = f"{VOCABULARY} tokens, {LENGTH} of them, rewards 0 or 1 (a third), logits standard normal"
    return {"tree": tree, "trees": TREES, "signal": signal, "gradient": "one sample, logits of every prefix"}
