"""Measure how well a score ranks runs, or separates those that will collapse from others."""

import numpy as np
from numpy.typing import ArrayLike


def auroc(score_N: ArrayLike, event_N: ArrayLike) -> float:
    """Return the probability that a run with the event has the larger score; ties count half (Mann-Whitney).

    NaN if no run, or every run, has the event. Rows without a score are left out.
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


def kendall(x_N: ArrayLike, y_N: ArrayLike) -> float:
    """Return Kendall's tau-b without pairs that lack a number; NaN if either is constant."""
    from scipy.stats import kendalltau

    x, y = np.asarray(x_N, dtype=np.float64), np.asarray(y_N, dtype=np.float64)
    return float(kendalltau(x, y, nan_policy="omit").statistic)
