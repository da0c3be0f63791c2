"""Tails of the sequence ratios: complementary distributions from the histograms of a run."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from analysis.tables.outcomes import need
from testbed.diagnostics.metric_names import HISTOGRAM_EDGES
from testbed.errors import UserError

HISTOGRAM = "rollout_corr/log_rho_sequence_histogram"
BINS = len(HISTOGRAM_EDGES) + 1


def counts(column: pd.Series) -> NDArray[np.float64]:
    """Return the histogram column as an array [rows, BINS]; cells are lists or text like "0 0 12 3"."""
    rows = [np.array(cell.split() if isinstance(cell, str) else cell, dtype=np.float64) for cell in column]
    for index, row in enumerate(rows):
        if row.shape != (BINS,):
            raise UserError(
                f"Histogram {index} has {row.size} counts, expected {BINS} (the bins of "
                "HISTOGRAM_EDGES and the two open ones); it was written with other bins."
            )
    return np.stack(rows)


def exceedance(counts_xH: ArrayLike) -> NDArray[np.float64]:
    """Return P(log rho >= edge) at every edge, [..., 129] from counts [..., 130]; NaN without counts."""
    array_xH = np.asarray(counts_xH, dtype=np.float64)
    above_xE = np.cumsum(array_xH[..., ::-1], axis=-1)[..., ::-1][..., 1:]
    with np.errstate(invalid="ignore"):
        return np.asarray(above_xE / array_xH.sum(axis=-1, keepdims=True))


def pool(frame: pd.DataFrame, by: Sequence[str] = ("recipe", "lag", "seed")) -> pd.DataFrame:
    """Return the histograms summed per combination of `by`; columns by…, HISTOGRAM (array of counts), ratios.

    Rows logged at or before step `lag` are left out: until then the data come from the initial weights and
    are less stale than the lag says. ratios is the number of sequences behind the counts.
    """
    need(frame, [*by, HISTOGRAM])
    rows = frame[frame["step"] > frame["lag"]] if {"step", "lag"} <= set(frame.columns) else frame
    found = []
    for key, group in rows.groupby(list(by), sort=True, dropna=False):
        summed = counts(group[HISTOGRAM]).sum(axis=0)
        found.append((*key, summed, int(summed.sum())))
    return pd.DataFrame(found, columns=[*by, HISTOGRAM, "ratios"])


def exceedances(pooled: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return P(log rho >= x) of every row of `pool` from where one falls below 1: keys, log rho, share.

    A row keeps its zeros up to the largest x of any row; otherwise a median over the remaining rows would
    rise again.
    """
    if (pooled := pooled[pooled["ratios"] > 0]).empty:
        raise UserError("No step after the lag has sequence ratios. Run more steps.")
    found = pooled.loc[pooled.index.repeat(len(HISTOGRAM_EDGES)), list(keys)].reset_index(drop=True)
    found["log rho"] = np.tile(np.asarray(HISTOGRAM_EDGES, dtype=float), len(pooled))
    found["share"] = exceedance(counts(pooled[HISTOGRAM])).ravel()
    start = found.loc[found["share"] < 0.99, "log rho"].min() - 1  # to the left of it nothing happens
    end = found.loc[found["share"] > 0, "log rho"].max()
    return found[found["log rho"].between(start, end)]
