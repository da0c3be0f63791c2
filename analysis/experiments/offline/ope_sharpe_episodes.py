"""SharpeRatio@k on logged episodes: IS, PDIS, WIS, fitted Q, doubly robust and DICE pick portfolios."""

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, Seeds, columns, must_exceed, of_seeds, runs_of
from analysis.worlds.trajectory_worlds import of_log, ten_steps
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.logged_data import collect, skilled
from testbed.estimators.dice import dice
from testbed.estimators.doubly_robust_trajectory import trajectory_dr
from testbed.estimators.fqe import fitted_q_steps, fqe_finite
from testbed.estimators.selection import mean_squared_error, rank_correlation, sharpe_ratio_at_k
from testbed.estimators.trajectory import pdis, trajectory_is, trajectory_wis
from testbed.offline.tabular_offline import greedy, optimal_q
from testbed.rng import generator, keys

NAME = "ope-sharpe-episodes"
SEEDS, EPISODES, POLICIES, DISCOUNT = 32, 100, 12, 0.95
KS = (2, 3, 4, 6, 10)
NEAR, APART = 1.25, 1.25
"""Largest quotient of errors that count as alike, least quotient of Sharpe ratios that tell apart."""
ESTIMATORS = {
    "IS": trajectory_is,
    "PDIS": pdis,
    "WIS": trajectory_wis,
    "fitted Q": fqe_finite,
    "DR": lambda found: trajectory_dr(found.with_model(fitted_q_steps(found))),
    "DICE": dice,
}


def portfolios(
    value_W: Floats, true_W: Floats, logged: float, seed: int, **where: str
) -> Iterator[pd.DataFrame]:
    """Yield accuracy and SharpeRatio@k of estimated values [W], k from 2 to 10, for an estimator on a log."""
    mse, rank = mean_squared_error(value_W, true_W), rank_correlation(value_W, true_W)
    for k in KS:
        sharpe = float(sharpe_ratio_at_k(value_W, true_W, k=k, baseline=logged))
        yield columns((seed,), **where, k=k, sharpe=sharpe, log_mse=float(np.log(mse)), rank=float(rank))


def rows_of(name: str, world: FiniteMDP, seed: int) -> Iterator[pd.DataFrame]:
    """Return accuracy and SharpeRatio@k of every estimator on one log of a policy of quality 0.3."""
    best_SA = greedy(optimal_q(world))[0]
    mu_SA, rng = skilled(best_SA, 0.3), generator(seed, f"candidates of {name}")
    mix_W11 = rng.uniform(0.2, 1.0, size=(POLICIES, 1, 1))
    other_WSA = rng.dirichlet(np.ones(world.actions), size=(POLICIES, world.states))
    pi_WSA = mix_W11 * skilled(best_SA, rng.uniform(0.0, 0.9, POLICIES)) + (1 - mix_W11) * other_WSA
    true_W, logged = world.value(pi_WSA), float(world.value(mu_SA))
    log = collect(world, mu_SA[None, None], EPISODES, keys((seed,), f"{NAME} {name}"))
    found = [of_log(log, pi_SA, mu_SA, DISCOUNT, 0) for pi_SA in pi_WSA]
    for each, estimate in ESTIMATORS.items():
        value_W = np.array([float(estimate(episodes).value) for episodes in found])
        yield from portfolios(value_W, true_W, logged, seed, world=name, estimator=each)


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return those of a corridor and of a random world, 10 steps each, for every seed."""
    for seed in seeds:
        for name in ("chain", "garnet"):
            yield from rows_of(name, ten_steps(seed)[name], seed)


def at_four(table: pd.DataFrame, run: str) -> list[pd.DataFrame]:
    """Return the estimators' rows at k = 4, a frame per log."""
    chosen = table[(table["run"] == run) & (table["k"] == 4)]
    return [log for _, log in chosen.groupby([name for name in ("world", "seed") if name in chosen])]


EXPERIMENT = Experiment(
    NAME,
    question="Does SharpeRatio@k tell estimators of episodes apart whose errors are alike?",
    source="Kiyohara et al. (2024), Towards assessing and benchmarking risk-return tradeoff of OPE",
    differs="two worlds of 10 steps, 12 random candidates, 100 episodes; DICE ignores the horizon",
    compute=of_seeds(NAME, rows, SEEDS, {"episodes": EPISODES, "policies": POLICIES}),
    keys=("run", "seed", "world", "estimator", "k"),
    metrics=("log_mse", "rank", "sharpe"),
    margins={"quotient of errors that are alike": NEAR, "quotient of Sharpe ratios": APART},
    figure=Plot(
        "frontier",
        x="log_mse: log mean squared error",
        y="sharpe: SharpeRatio@4",
        arm=("estimator",),
        where={"k": 4},
        says="Shows by how much the best of an estimator's 4 favorite policies is above the logger, over "
        "their spread (SharpeRatio@4), against its log squared error, on 100 episodes of two worlds of 10 "
        "steps: importance sampling by episode (IS), by step (PDIS) or normalized (WIS), fitted Q, doubly "
        "robust (DR), and density ratios (DICE).",
    ),
    systems={"SharpeRatio@k / SCOPE-RL": Part()},
)


def told_apart(log: pd.DataFrame) -> list[bool]:
    """Return, for every pair of estimators with like errors, whether SharpeRatio@4 tells it apart."""
    found = []
    for a, b in itertools.combinations(log[["log_mse", "sharpe"]].to_numpy(dtype=np.float64), 2):
        if abs(a[0] - b[0]) <= np.log(NEAR):
            low, high = sorted((float(a[1]), float(b[1])))
            found.append(high > (APART * low if low > 0 else low))
    return found


@EXPERIMENT.claim("sharpe-tells-like-estimators-of-episodes-apart")
def sharpe_tells_like_estimators_of_episodes_apart(table: pd.DataFrame) -> Evidence:
    """Of pairs of estimators whose squared errors on a log differ by at most a quarter, most have
    SharpeRatio@4 that differ by more than a quarter.
    """
    found = {
        run: np.array([np.mean(pairs) - 0.5 for log in at_four(table, run) if (pairs := told_apart(log))])
        for run in runs_of(table)
    }
    return must_exceed(found, 0.0, "share of pairs less 1/2")


@EXPERIMENT.claim(
    "sharpe-picks-another-estimator-of-episodes-than-error",
    statement=(
        "In most logs of episodes the estimator with the least squared error does not have the best "
        "SharpeRatio@4."
    ),
)
def picks_another(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the share of logs, in both runs; a tie in Sharpe counts as agreement."""
    found = {}
    for run in runs_of(table):
        logs = at_four(table, run)
        sharpe = [log.set_index("log_mse")["sharpe"].sort_index() for log in logs]
        found[run] = np.array([x.max() > x.iloc[0] + 1e-9 for x in sharpe]) - 0.5
    return must_exceed(found, 0.0, "share of logs less 1/2")
