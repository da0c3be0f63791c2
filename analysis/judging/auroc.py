"""Measure how well a score separates runs that will collapse from others, with an interval."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from analysis.judging.intervals import Interval

DRAWS = 1000


def auroc(score_N: ArrayLike, event_N: ArrayLike) -> float:
    """Return the chance that a run with the event has the larger score, ties counted half (Mann-Whitney).

    NaN where one of the two kinds is missing. Rows without a score are left out.
    """
    from scipy.stats import rankdata

    score, event = np.asarray(score_N, dtype=np.float64), np.asarray(event_N, dtype=np.float64) > 0.5
    known = ~np.isnan(score)
    score, event = score[known], event[known]
    with_event, without = int(event.sum()), int((~event).sum())
    if not with_event or not without:
        return float("nan")
    ranks = rankdata(score)[event].sum()
    return float((ranks - with_event * (with_event + 1) / 2) / (with_event * without))


def clustered_auroc(frame: pd.DataFrame, score: str, event: str, cluster: list[str]) -> Interval:
    """Return the AUROC of a column with its 95% percentile interval, whole clusters drawn with replacement.

    Runs of one cluster share everything but the seed, so that they are not independent. Draws in which all
    runs, or none, have the event say nothing and are left out. The draws are the same for every score.
    """
    groups = [rows.to_numpy(dtype=float) for _, rows in frame.groupby(cluster)[[score, event]]]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        picked = np.concatenate([groups[k] for k in rng.integers(len(groups), size=len(groups))])
        found.append(auroc(picked[:, 0], picked[:, 1]))
    known = np.array(found)[~np.isnan(found)]
    low, high = np.quantile(known, [0.025, 0.975]) if known.size else (np.nan, np.nan)
    return Interval(
        auroc(frame[score], frame[event]), float(low), float(high), len(groups), "clustered bootstrap", 0.95
    )
