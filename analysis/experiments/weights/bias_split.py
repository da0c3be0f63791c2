"""Where the bias of an objective's gradient comes from: prefixes, continuations or its clip."""

import numpy as np
import pandas as pd

from analysis.experiments.weights.bias_variance import SPLIT_DRIFT, TREES, about, bench
from analysis.lab import Experiment
from analysis.tables.committed import Table

NAME = "bias-split"
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


def bias_split() -> Table:
    """Return the mean over trees of the signed shares of the bias, per objective, at SPLIT_DRIFT."""
    from testbed.exact.gradient_report import gradient_report

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
    return Table.of(NAME, frame, about("R - J(mu)") | {"drift": SPLIT_DRIFT})


EXPERIMENT = Experiment(
    NAME,
    question="How much of an objective's bias is due to prefixes, to continuations and to its clip?",
    source="exact enumeration; the claims of gradients name the papers of the objectives",
    compute=bias_split,
    keys=("objective",),
    metrics=("bias_state", "bias_suffix", "bias_clipping", "relative_bias", "relative_deviation"),
    figure="bias-split",
)
