"""Portfolios of policies picked by estimators, judged by SharpeRatio@k and by accuracy."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Part,
    Plot,
    Seeds,
    columns,
    exact,
    must_exceed,
    of_seeds,
    runs_of,
    short_of,
)
from envs.arrays import Floats
from envs.logged_bandit import LoggedBandit, logged_bandit
from testbed.estimators.selection import mean_squared_error, rank_correlation, regret_at_k, sharpe_ratio_at_k
from testbed.offline.bandits import mean_model, score_table
from testbed.rng import generator, keys

NAME = "ope-sharpe"
SEEDS, ROUNDS, POLICIES = 32, 500, 20
KS = (2, 3, 4, 6, 10)
ESTIMATORS = ("IPS", "smoothed", "self-normalized", "DM", "DR")


def candidates(seed: int) -> tuple[LoggedBandit, Floats]:
    """A logged bandit of 6 contexts and 5 arms, and 20 soft policies of scores of mixed skill, [W, S, A]."""
    bandit, rng = logged_bandit(contexts=6, arms=5, temperature=0.3, seed=seed), generator(seed, "candidates")
    skill_W11 = rng.uniform(-0.5, 1.0, size=(POLICIES, 1, 1))
    score_WSA = skill_W11 * bandit.reward_SA + (1 - np.abs(skill_W11)) * rng.random((POLICIES, 6, 5))
    mass_WSA = np.exp(score_WSA / rng.uniform(0.05, 0.5, size=(POLICIES, 1, 1)))
    return bandit, mass_WSA / mass_WSA.sum(-1, keepdims=True)


def estimates(bandit: LoggedBandit, pi_WSA: Floats, seed: int) -> dict[str, Floats]:
    """Estimated values of the candidates, [W], from 500 logged rounds."""
    data = bandit.log(keys((seed,), "ope-sharpe"), ROUNDS)
    model = mean_model(data, 6, 5)
    tables = {
        "IPS": score_table(data, 6, 5),
        "smoothed": score_table(data, 6, 5, alpha=0.7),
        "DM": (np.bincount(data.context_RN[0], minlength=6) / ROUNDS)[None, :, None] * model,
        "DR": score_table(data, 6, 5, model_RSA=model),
    }
    found = {name: (g_RSA * pi_WSA).sum((1, 2)) for name, g_RSA in tables.items()}
    weights = score_table(data, 6, 5, reward_RN=np.ones_like(data.reward_RN))
    return found | {"self-normalized": found["IPS"] / (weights * pi_WSA).sum((1, 2))}


def portfolios(
    value_W: Floats, true_W: Floats, logged: float, seed: int, **where: str
) -> Iterator[pd.DataFrame]:
    """Yield accuracy and SharpeRatio@k of estimated values [W], k from 2 to 10, for an estimator on a log."""
    mse, rank = mean_squared_error(value_W, true_W), rank_correlation(value_W, true_W)
    for k in KS:
        sharpe = float(sharpe_ratio_at_k(value_W, true_W, k=k, baseline=logged))
        yield columns((seed,), **where, k=k, sharpe=sharpe, log_mse=float(np.log(mse)), rank=float(rank))


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return those of every estimator, with the regret of its best candidate."""
    for seed in seeds:
        bandit, pi_WSA = candidates(seed)
        true_W, logged = bandit.value(pi_WSA), float(bandit.value(bandit.logging_SA))
        for name, found_W in estimates(bandit, pi_WSA, seed).items():
            for frame in portfolios(found_W, true_W, logged, seed, estimator=name):
                yield frame.assign(regret=float(regret_at_k(found_W, true_W)))


def at_four(table: pd.DataFrame, run: str) -> list[pd.DataFrame]:
    """Return the estimators' rows at k = 4, a frame per log."""
    chosen = table[(table["run"] == run) & (table["k"] == 4)]
    return [log for _, log in chosen.groupby([name for name in ("world", "seed") if name in chosen])]


EXPERIMENT = Experiment(
    NAME,
    question="Does SharpeRatio@k tell estimators apart that accuracy ranks alike?",
    source="Kiyohara et al. (2024), Towards assessing and benchmarking risk-return tradeoff of OPE",
    differs="logged bandits with 20 random candidates; no episodes",
    compute=of_seeds(NAME, rows, SEEDS, {"rounds": ROUNDS, "policies": POLICIES}),
    keys=("run", "seed", "estimator", "k"),
    metrics=("log_mse", "rank", "regret", "sharpe"),
    figure=Plot(
        "frontier",
        x="log_mse: log mean squared error",
        y="sharpe: SharpeRatio@4",
        arm=("estimator",),
        where={"k": 4},
    ),
    systems={
        "SharpeRatio@k / SCOPE-RL": Part(
            what="portfolios on logged bandits by IPS, smoothed IPS, SNIPS, DM and DR; no episodes, no DICE"
        )
    },
)


@EXPERIMENT.claim(source="Kiyohara et al. (2024); example made here")
def sharpe_separates_estimators_of_equal_accuracy() -> Evidence:
    """Two estimators with equal mean squared error, rank correlation and regret have SharpeRatio@3 of 4.77
    and 2.88. A constant added to all estimates moves the error alone; with k = all candidates are one.
    """
    true_W = np.array([1.0, 0.9, 0.75, 0.6, 0.45, 0.1])
    # Both swap one pair of neighbors of equal distance: in places 3 and 4, and in places 4 and 5.
    first_W, second_W = true_W[[0, 1, 2, 4, 3, 5]], true_W[[0, 1, 3, 2, 4, 5]]
    gaps = [
        float(abs(measure(first_W, true_W) - measure(second_W, true_W)))
        for measure in (mean_squared_error, rank_correlation, regret_at_k)
    ]
    ratios = [float(sharpe_ratio_at_k(x_W, true_W, k=3, baseline=0.4)) for x_W in (first_W, second_W)]
    by_hand = [0.6 / np.std(true_W[[0, 1, last]], ddof=1) for last in (2, 3)]
    gaps += [abs(a - b) for a, b in zip(ratios, by_hand, strict=True)]
    gaps.append(abs(float(sharpe_ratio_at_k(first_W + 5, true_W, k=3, baseline=0.4)) - ratios[0]))
    whole = [float(sharpe_ratio_at_k(x_W, true_W, k=6, baseline=0.4)) for x_W in (first_W, second_W, -true_W)]
    gaps += [float(np.ptp(whole)), short_of(abs(ratios[0] - ratios[1]), 1.0)]
    return exact(gaps, 1e-12, f"largest distance; SharpeRatio@3 {ratios[0]:.3f} and {ratios[1]:.3f}")


@EXPERIMENT.claim(
    "sharpe-picks-another-estimator-than-error-in-most-logs",
    statement=(
        "In most logs the estimator with the best SharpeRatio@4 is not the one with the least squared error."
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
