"""PRDC on a continuous bandit: a penalty on the distance to the nearest data, against cloning and support."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import Experiment, Plot, combinations, of_keys
from envs.arrays import Floats
from envs.continuous import BumpBandit
from testbed.offline.continuous import local_mean, nearest_distance, penalized_actions, polynomial_critic

NAME = "nearest-data"
SEEDS, LOGGED, DEGREE = 40, 200, 6
WEIGHTS = (1.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
LOGGERS: Mapping[str, Any] = {
    "poor": {"mean_W": [0.0], "std_W": [0.8], "share_W": [1.0]},
    "mixed": {"mean_W": [-0.8, 1.5], "std_W": [0.3, 0.4], "share_W": [0.3, 0.7]},
    "narrow": {"mean_W": [-0.4], "std_W": [0.3], "share_W": [1.0]},
}
"""Means and deviations of the logged actions: wide and aimless, two kinds of logger, one that is half right.
"""
HIGHER = 0.05


def make(key_R: NDArray[np.uint64]) -> pd.DataFrame:
    """Return the exact value of every logger and penalty, at the weight that is best for its mean value."""
    table = pd.concat(at_weights(key_R), ignore_index=True)
    mean = table.groupby(["logger", "penalty", "weight"])["value"].mean()
    best = {index[:2]: index[2] for index in mean.groupby(["logger", "penalty"]).idxmax()}
    chosen = [best[pair] for pair in zip(table["logger"], table["penalty"], strict=True)]
    return table[table["weight"] == chosen].reset_index(drop=True)


def at_weights(key_R: NDArray[np.uint64]) -> Iterator[pd.DataFrame]:
    """Return the exact value, as a share of the best, of policies greedy in a penalized polynomial critic."""
    bandit, grid_S, grid_A = setting()
    best = float(bandit.mean_reward(grid_S[:, None], grid_A).max(-1).mean())
    for logger, law in LOGGERS.items():
        x_RN, a_RN, r_RN = bandit.log(key_R, LOGGED, **law)
        q_RSA = polynomial_critic(x_RN, a_RN, r_RN, grid_S, grid_A, DEGREE, 1e-3)
        penalties = {
            "nearest data": nearest_distance(x_RN, a_RN, grid_S, grid_A, 2.0)[0],
            "cloning": (grid_A - local_mean(x_RN, a_RN, grid_S, 0.2)[..., None]) ** 2,
            "support": nearest_distance(x_RN, a_RN, grid_S, grid_A, 0.0)[0],
        }
        for penalty, size_RSA in penalties.items():
            frame, _ = combinations(key_R, logger=[logger], penalty=[penalty], weight=WEIGHTS)
            found = [
                bandit.mean_reward(grid_S, penalized_actions(q_RSA, size_RSA, weight, grid_A)).mean(-1)
                for weight in WEIGHTS
            ]
            yield frame.assign(value=np.concatenate(found) / best)


def setting() -> tuple[BumpBandit, Floats, Floats]:
    """Return a bandit of two bumps, one moving with the context, and grids of contexts and actions."""
    bandit = BumpBandit(
        center_K=np.array([-1.0, 1.0]), tilt_K=np.array([0.5, 0.0]), height_K=np.array([1.0, 0.7]),
        width_K=np.array([0.3, 0.5]),
    )  # fmt: skip
    return bandit, np.linspace(0.0, 1.0, 11), np.linspace(-3.0, 3.0, 121)


EXPERIMENT = Experiment(
    NAME,
    question="Is the distance to the nearest data a better constraint than cloning or support?",
    source="Ran et al. (2023), Policy regularization with dataset constraint (PRDC)",
    differs="a continuous bandit; each penalty at its best weight; the critic is a polynomial",
    compute=of_keys(NAME, make, SEEDS, {"logged": LOGGED, "degree": DEGREE}),
    keys=("run", "logger", "penalty", "seed"),
    metrics=("weight", "value"),
    margins={"share of the best value that counts as higher": HIGHER},
    figure=Plot("distribution", x="logger", y="value: value, share of the best", arm=("penalty",)),
    systems=("PRDC",),
)


EXPERIMENT.claim(
    "nearest-data-is-less-conservative-than-cloning",
    """With poor, mixed and narrow logs the penalty on the distance to the nearest data is worth more
    than one on the distance to the mean action, by 0.05 of the best, in the first run and the
    replication.""",
).compare("value", {"penalty": "nearest data"}, {"penalty": "cloning"}, by=HIGHER, over={"logger": LOGGERS})


EXPERIMENT.claim(
    "nearest-data-beats-a-support-constraint",
    """With poor, mixed and narrow logs it is worth more than a penalty on the distance to the nearest
    action of any context, by 0.05 of the best, in the first run and the replication.""",
).compare("value", {"penalty": "nearest data"}, {"penalty": "support"}, by=HIGHER, over={"logger": LOGGERS})
