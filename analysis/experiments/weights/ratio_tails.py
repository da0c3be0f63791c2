"""The tails of the sequence ratios behind the experiment staleness."""

import pandas as pd

from analysis.lab import Experiment, Plot
from analysis.tables.committed import Table
from analysis.tables.condensed import condense
from analysis.tables.tails import HISTOGRAM, exceedances


def histograms(rows: pd.DataFrame) -> Table:
    """Return the histogram of log sequence ratios per recipe, lag and seed, summed over steps."""
    return condense(rows)["ratio-tails"]


EXPERIMENT = Experiment(
    question="How heavy are the tails of sequence ratios while a recipe learns from stale data?",
    source="this project",
    runs="staleness",
    from_rows=histograms,
    keys=("recipe", "lag", "seed"),
    metrics=(HISTOGRAM, "ratios"),
    figure=Plot(
        "curves by arm",
        x="log rho: log ρ of a sequence",
        y="share: P(log ρ ≥ x)",
        arm=("lag: lag",),
        panel="recipe",
        log="y",
        of=lambda table: exceedances(table, ["recipe", "lag", "seed"]),
        says="Shows the share of sampled sequences whose log importance ratio is at least x, from all steps "
        "at which the lag was in full effect: what a curve lacks to 1 at the left are sequences that the "
        "current policy would hardly write any more, and no distribution of ratios exceeds exp(-x) (Markov).",
    ),
)
