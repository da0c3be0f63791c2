"""Bias and variance of a policy gradient along drift, exactly, ratio by ratio, on random token trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Plot
from analysis.tables.committed import Table
from testbed.exact.response_tree import random_policies, random_tree

if TYPE_CHECKING:
    from testbed.exact.gradient_report import Bench

NAME = "bias-variance"
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


def bench(seed: int, drift: float) -> Bench:
    """Return the seed-th tree of 4 tokens, 4 of them, with the policies of a drift."""
    from testbed.exact.gradient_report import Bench

    tree = random_tree(VOCABULARY, LENGTH, seed)
    return Bench(tree, *random_policies(tree, drift, seed))


def about(signal: str) -> dict[str, object]:
    tree = f"{VOCABULARY} tokens, {LENGTH} of them, rewards 0 or 1 (a third), logits standard normal"
    return {"tree": tree, "trees": TREES, "signal": signal, "gradient": "one sample, logits of every prefix"}


def bias_variance() -> Table:
    """Return relative bias and deviation per ratio and drift: median and quartiles over trees."""
    from testbed.exact.gradient_report import gradient_report

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
    return Table.of(NAME, frame, about("R - J(mu)") | {"drifts": list(DRIFTS)})


EXPERIMENT = Experiment(
    NAME,
    question="What does each ratio trade of bias for variance, as the policy drifts away from its data?",
    source="exact enumeration; the claims of gradients name the papers of the ratios",
    compute=bias_variance,
    keys=("ratio", "drift"),
    metrics=("bias_low", "bias", "bias_high", "deviation_low", "deviation", "deviation_high"),
    figure=Plot(
        "curves by arm",
        x="drift: drift of the logits",
        y="bias: relative bias",
        arm=("ratio",),
        log="xy",
        also=({"y": "deviation: relative deviation"},),
    ),
)
