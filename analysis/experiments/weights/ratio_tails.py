"""The tails of the sequence ratios behind the experiment staleness."""

import pandas as pd

from analysis.lab import Experiment
from analysis.tables.committed import Table
from analysis.tables.condensed import condense
from analysis.tables.tails import HISTOGRAM


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
    figure="ratio-tails",
)
