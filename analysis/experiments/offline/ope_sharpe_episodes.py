"""SharpeRatio@k: does it identify which of two equally accurate estimators picks the less risky policies?"""

import itertools

import numpy as np
import pandas as pd
from scipy import stats

from analysis.lab import Experiment, Floats, Frame, Rows, Seeds, asks, columns, of_seeds, strips
from analysis.worlds.trajectory_worlds import of_log
from envs.logged_data import collect, skilled
from envs.mdps import garnet
from testbed.estimators.dice import dice
from testbed.estimators.doubly_robust_trajectory import trajectory_dr
from testbed.estimators.fqe import fitted_q_steps, fqe_finite
from testbed.estimators.selection import mean_squared_error, rank_correlation, regret_at_k, top_values
from testbed.estimators.trajectory import pdis, trajectory_is, trajectory_wis
from testbed.offline.tabular_offline import greedy, optimal_q
from testbed.rng import generator, keys

NAME = "ope-sharpe-episodes"
SEEDS, HALF, EPISODES, POLICIES, DISCOUNT, LOGGER = 256, 3, 50, 30, 0.95, 0.1
"""Random worlds of a run; logs in each half of a world; episodes; candidates; quality of the logger."""
KS, CLOSEST = (2, 4, 8), 5
"""Portfolio sizes k; of the 15 pairs of estimators, the number judged, those that differ least."""
BETTER = 0.05
"""Margin, a share of pairs. Set before the table was made."""
ESTIMATORS = {
    "IS": trajectory_is,
    "PDIS": pdis,
    "WIS": trajectory_wis,
    "fitted Q": fqe_finite,
    "DR": lambda found: trajectory_dr(found.with_model(fitted_q_steps(found))),
    "DICE": dice,
}
METRICS = {
    "SharpeRatio": lambda half: (half["best"] - half["logged"]) / half["spread"],
    "best": lambda half: half["best"],
    "squared error": lambda half: -np.log(half["mse"]),
    "rank correlation": lambda half: half["rank"],
    "regret": lambda half: -half["regret"],
}
"""Metrics by which an estimator can be better, from the means of one half: larger is better."""
ERRORS = ("squared error", "rank correlation", "regret")
"""Metrics in which the judged pairs of estimators are alike."""


def portfolios(seed: int) -> Frame:
    """Return accuracy, and the k policies that each estimator ranks first, in every log of a random world."""
    world = garnet(states=8, actions=3, branching=3, seed=seed, noise_std=0.5, horizon=10, discount=DISCOUNT)
    best_SA, rng = greedy(optimal_q(world))[0], generator(seed, f"{NAME} candidates")
    mu_SA = skilled(best_SA, LOGGER)
    mix_W11 = rng.uniform(0.2, 1.0, size=(POLICIES, 1, 1))
    other_WSA = rng.dirichlet(np.ones(world.actions), size=(POLICIES, world.states))
    pi_WSA = mix_W11 * skilled(best_SA, rng.uniform(0.0, 0.9, POLICIES)) + (1 - mix_W11) * other_WSA
    true_W, logged = world.value(pi_WSA), float(world.value(mu_SA))
    mu_RWSA = np.broadcast_to(mu_SA, (2 * HALF, 1, *mu_SA.shape))
    log = collect(world, mu_RWSA, EPISODES, keys(tuple(range(2 * HALF)), f"{NAME} {seed}"))
    episodes = [of_log(log, pi_SA, mu_SA, DISCOUNT) for pi_SA in pi_WSA]
    found = []
    by_name = {name: np.stack([each(e).value for e in episodes], -1) for name, each in ESTIMATORS.items()}
    for (name, value_LW), k in itertools.product(by_name.items(), KS):
        top_LK = top_values(value_LW, true_W, k=k)
        said = {
            "mse": mean_squared_error(value_LW, true_W),
            "rank": rank_correlation(value_LW, true_W),
            "regret": regret_at_k(value_LW, true_W),
            "best": top_LK.max(-1),
            "worst": top_LK.min(-1),
            "spread": top_LK.std(-1, ddof=1),
        }
        half_L = np.arange(2 * HALF) % 2
        found.append(pd.DataFrame({"half": half_L, "estimator": name, "k": k, "logged": logged, **said}))
    return pd.concat(found)


def foretold(score_E: Floats, risk_E: Floats, pairs: list[tuple[int, int]]) -> float:
    """Return the share of pairs in which the better score has the higher value on other logs (ties: 1/2)."""
    signs = [np.sign(score_E[a] - score_E[b]) * np.sign(risk_E[a] - risk_E[b]) for a, b in pairs]
    return float(np.mean(signs) / 2 + 0.5)


def closest(mean: Frame) -> list[tuple[int, int]]:
    """Return the pairs of estimators that differ least in all accuracy metrics, by ranks."""
    pairs = list(itertools.combinations(range(len(mean)), 2))
    scores_ME = [METRICS[name](mean).to_numpy() for name in ERRORS]
    gaps_MP = [[abs(score_E[a] - score_E[b]) for a, b in pairs] for score_E in scores_ME]
    order = stats.rankdata(gaps_MP, axis=-1).sum(0)
    return [pairs[i] for i in np.argsort(order, kind="stable")[:CLOSEST]]


def rows(seeds: Seeds) -> Rows:
    """Yield how often metrics on one half of the logs predict worst@k, and a small std@k, on the other."""
    for seed in seeds:
        for k, of_k in portfolios(seed).groupby("k"):
            halves = [
                each.groupby("estimator").mean().loc[list(ESTIMATORS)] for _, each in of_k.groupby("half")
            ]
            pairs = closest((halves[0] + halves[1]) / 2)
            for metric, score in METRICS.items():
                shares = {}
                for name, risk, sign in (("share worst", "worst", 1), ("share narrow", "spread", -1)):
                    each = [(score(here), sign * there[risk]) for here, there in (halves, halves[::-1])]
                    shares[name] = np.mean([foretold(x.to_numpy(), y.to_numpy(), pairs) for x, y in each])
                yield columns((seed,), metric=metric, k=k, **shares)


EXPERIMENT = Experiment(
    question="Does SharpeRatio@k say which of two estimators of like error picks the less risky policies?",
    source="Kiyohara et al. (2024), Towards assessing and benchmarking risk-return tradeoff of OPE",
    differs="random worlds of 10 steps, 30 candidates, 50 episodes of a near-random logger, so that weights "
    "have heavy tails; best, worst and spread of a portfolio are means over three logs; DICE ignores the "
    "horizon",
    compute=of_seeds(NAME, rows, SEEDS, {"episodes": EPISODES, "policies": POLICIES, "logs": 2 * HALF}),
    keys=("run", "seed", "metric", "k"), metrics=("share worst", "share narrow"),
    margins={"share of pairs": BETTER},
    figure=strips("share worst: share of pairs foretold", "Shows how often a metric on three logs predicts "
        "which estimator's worst policy of its k favorites is better on three other logs, for the five pairs "
        "of estimators that differ least in accuracy and k = 2, 4 and 8; metrics: SharpeRatio@k, its "
        "numerator alone (best), and metrics of accuracy; six estimators, random worlds of 10 steps, 50 "
        "episodes, 30 candidates.", y="metric"),
    systems=("SharpeRatio@k / SCOPE-RL",),
)  # fmt: skip

asks(EXPERIMENT,
    ("sharpe-foretells-the-worse-portfolio", "Of estimators that differ least in accuracy SharpeRatio@k "
     "foretells on other logs whose worst policy of k is better, at k = 2, 4 and 8, for a share of pairs "
     "0.05 larger than squared error and rank correlation and regret do.", {"metric": "SharpeRatio"},
     {"metric": ERRORS}, {"outcome": "share worst"}),
    ("sharpe-foretells-the-wider-portfolio", "Of estimators that differ least in accuracy SharpeRatio@k "
     "foretells on other logs whose k policies differ less, at k = 2, 4 and 8, for a share of pairs 0.05 "
     "larger than squared error and rank correlation and regret do.", {"metric": "SharpeRatio"},
     {"metric": ERRORS}, {"outcome": "share narrow"}),
    by=BETTER, typical="mean", off={"metric": "best"}, over={"k": KS},
)  # fmt: skip
