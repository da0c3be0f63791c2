"""Tail indices over the number of weights used, on laws whose index is known: a table for one figure."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from analysis.lab import Experiment, Plot
from analysis.tables.committed import Table
from testbed.diagnostics.tail_indices import tail_curve

NAME = "tail-stability"
ESTIMATORS = ("hill", "moment", "pickands")
LAWS = {"Pareto": 0.5, "exponential": 0.0, "log-normal": 0.0, "uniform": -1.0}
"""Laws of the weights and their true index."""


def log_weights(law: str, u_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithms of weights with the law at the levels u, 0 < u < 1."""
    return {
        "Pareto": lambda: -0.5 * np.log1p(-u_N),
        "exponential": lambda: np.log(-np.log1p(-u_N)),
        "log-normal": lambda: np.asarray(special.ndtri(u_N)),
        "uniform": lambda: np.log(u_N),
    }[law]()


def tail_stability(samples: int = 100, n: int = 5000, points: int = 20) -> Table:
    """Return median and 5th and 95th percentile of each index per law and k; rows: law, estimator, k.

    k runs from sqrt(n) to n/10. Samples of all laws share their uniform numbers, seed 0.
    """
    ks = np.unique(np.geomspace(np.sqrt(n), n / 10, points).round().astype(int)).tolist()
    u_MN = np.random.default_rng(0).uniform(size=(samples, n))
    frames = []
    for law, truth in LAWS.items():
        curves = [tail_curve(log_weights(law, u_N), ks) for u_N in u_MN]
        for estimator in ESTIMATORS:
            index_MK = np.array([getattr(curve, f"{estimator}_K") for curve in curves])
            low_K, median_K, high_K = np.nanpercentile(index_MK, [5, 50, 95], axis=0)
            columns = {"k": ks, "low": low_K, "index": median_K, "high": high_K}
            frames.append(pd.DataFrame({"law": law, "estimator": estimator, "truth": truth, **columns}))
    return Table.of(NAME, pd.concat(frames, ignore_index=True), {"samples": samples, "weights": n, "seed": 0})


EXPERIMENT = Experiment(
    NAME,
    question="Do tail indices find the index of laws whose tail is known?",
    source="Hill (1975); Dekkers, Einmahl & de Haan (1989); Pickands (1975)",
    compute=tail_stability,
    keys=("law", "estimator", "k"),
    metrics=("truth", "low", "index", "high"),
    figure=Plot(
        "curves by arm",
        x="k: largest weights used",
        y="index: tail index",
        arm=("estimator",),
        panel="law",
        of=lambda table: pd.concat([table, table.assign(estimator="truth", index=table["truth"])]),
    ),
)
