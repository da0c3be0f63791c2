"""CDSA on a continuous bandit: actions of a finished policy are moved up the density of the data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.judging.replication import Frame, Groups, Keys, Rows, combinations, difference, merged, of_keys
from analysis.kernels import one_continuous_action
from analysis.kernels.one_continuous_action import BumpBandit
from analysis.lab import Experiment, Plot, ask

NAME = "density-score"
SEEDS, LOGGED, DEGREE, WIDTH, RARE = 40, 200, 6, (0.2, 0.2), 0.02
LOGGERS: Mapping[str, Any] = {
    "poor": {"mean_W": [0.0], "std_W": [0.8], "share_W": [1.0]},
    "mixed": {"mean_W": [-0.8, 1.5], "std_W": [0.3, 0.4], "share_W": [0.3, 0.7]},
    "narrow": {"mean_W": [-0.4], "std_W": [0.3], "share_W": [1.0]},
}
"""Means and deviations of logged actions: wide and aimless, a mixture of two, and one near the optimum."""
ARMS = ("none", "score 5", "score 20", "penalty 10", "penalty 100")
"""Steps of correction, or the weight of a penalty on the distance to the nearest data."""
FEWER, SAME = 0.2, 0.05
"""Margins: share of actions whose density is below 0.02; share of the best value."""


def make(key_R: Keys) -> Rows:
    """Yield the share of actions outside the data, and of the best value, in a bandit of two bumps."""
    bandit = BumpBandit(
        center_K=np.array([-1.0, 1.0]), tilt_K=np.array([0.5, 0.0]), height_K=np.array([1.0, 0.7]),
        width_K=np.array([0.3, 0.5]),
    )  # fmt: skip
    grid_S, grid_A = np.linspace(0.0, 1.0, 11), np.linspace(-3.0, 3.0, 121)
    best = float(bandit.mean_reward(grid_S[:, None], grid_A).max(-1).mean())
    for logger, law in LOGGERS.items():
        x_RN, a_RN, r_RN = bandit.log(key_R, LOGGED, **law)
        q_RSA = one_continuous_action.polynomial_critic(x_RN, a_RN, r_RN, grid_S, grid_A, DEGREE, 1e-3)
        far_RSA, _ = one_continuous_action.nearest_distance(x_RN, a_RN, grid_S, grid_A, 2.0)
        trained_RS = one_continuous_action.penalized_actions(q_RSA, far_RSA, 0.0, grid_A)
        for arm in ARMS:
            kind, _, number = arm.partition(" ")
            taken_RS = trained_RS
            if kind == "penalty":
                taken_RS = one_continuous_action.penalized_actions(q_RSA, far_RSA, float(number), grid_A)
            elif kind == "score":
                taken_RS = one_continuous_action.score_corrected(
                    x_RN, a_RN, trained_RS, grid_S, WIDTH, steps=int(number), rate=WIDTH[1] ** 2
                )
            log_density_RS, _ = one_continuous_action.density_score(x_RN, a_RN, taken_RS, grid_S, WIDTH)
            frame, _ = combinations(key_R, logger=[logger], correction=[arm])
            frame["outside"] = (log_density_RS < np.log(RARE)).mean(-1)
            frame["value"] = bandit.mean_reward(grid_S, taken_RS).mean(-1) / best
            yield frame


EXPERIMENT = Experiment(
    question="Does the score of the data's density repair the actions of a finished policy?",
    source="Liu et al. (2024), CDSA",
    differs="one continuous action; the finished policy is greedy in a polynomial critic without pessimism; "
    "the score is that of a kernel density in place of a denoising network",
    compute=of_keys(NAME, make, SEEDS, {"logged": LOGGED}),
    keys=("run", "logger", "correction", "seed"), metrics=("outside", "value"),
    margins={"share of actions outside that counts as fewer": FEWER, "value that counts as equal": SAME},
    figure=Plot(
        "frontier", x="outside: share of actions outside the data", y="value: value, share of the best",
        arm=("correction",),
        says="Shows value, as a share of the best, against the share of actions where data are rare, in a "
        "continuous bandit; none leaves a finished policy alone; score 5 and score 20 move its actions by "
        "that many steps up the density of the data; penalty 10 and penalty 100 weight the distance to the "
        "nearest data when it chooses actions.",
    ),
    systems={"CDSA": "one bandit, and actions of a critic without any constraint; fewer actions outside "
             "follow from steps up the density that defines the outside, more value does not"},
)  # fmt: skip


def beyond_both_margins(table: Frame) -> Groups:
    """Return the fall of the share outside minus 0.2, and the value gained minus 0.05, by logger."""
    none, score = ({"correction": each} for each in ("none", "score 20"))
    fewer = difference(table, "outside", none, score, logger=LOGGERS)
    more = difference(table, "value", score, none, logger=LOGGERS)
    return merged(
        outside={name: x_N - FEWER for name, x_N in fewer.items()},
        value={name: x_N - SAME for name, x_N in more.items()},
    )


ask(EXPERIMENT, "density-scores-bring-actions-back-and-raise-the-value", "In a bandit of one continuous "
    "action twenty steps up the score lower the share of an unregularized critic's greedy actions outside "
    "the data by 0.2 and raise their value by 0.05 of the best, with poor, mixed and narrow logs.",
    outcome=beyond_both_margins)  # fmt: skip
