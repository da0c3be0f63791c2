"""Policies learned from logged bandits: smoothed, clipped and plain propensities, and ad loads by user."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from analysis.kernels.logged_bandits import best_policy, mean_model, score_table
from analysis.lab import (
    Evidence,
    Experiment,
    Part,
    Plot,
    Seeds,
    columns,
    level,
    merged,
    must_exceed,
    of_seeds,
)
from envs.arrays import Floats
from envs.logged_bandit import LoggedBandit, LoggedData, logged_bandit
from testbed.rng import generator, keys

NAME = "logged-policies"
SEEDS, LOGS, CONTEXTS, ARMS, LOADS, USERS = 32, 8, 10, 6, 5, 40
SIZES, LOGGERS = (300, 3000, 10000), {"peaked": 0.15, "mild": 0.4}
"""Logged rounds; temperatures of the logging policies, which know little of the rewards."""
SAME = 0.005
"""Regret that counts as equal, rewards being in [0, 1]. Set before the table was made."""
NAMES = ("IPS", "clipped", "smoothed")
LEARNERS = {
    ("peaked", 300): ((1.0, 0.0, 0.03), (1.0, 0.02, 0.03), (0.8, 0.0, 0.03)),
    ("peaked", 3000): ((1.0, 0.0, 0.01), (1.0, 0.01, 0.01), (0.97, 0.0, 0.01)),
    ("peaked", 10000): ((1.0, 0.0, 0.004), (1.0, 0.01, 0.002), (0.995, 0.0, 0.004)),
    ("mild", 300): ((1.0, 0.0, 0.1), (1.0, 0.1, 0.1), (0.9, 0.0, 0.1)),
    ("mild", 3000): ((1.0, 0.0, 0.015), (1.0, 0.03, 0.015), (0.97, 0.0, 0.005)),
}
"""Exponent, floor and penalty of each learner: the best of a grid of all three on 16 or 32 other worlds."""


def pessimistic(
    data: LoggedData, alpha: float, floor: float, penalty: float, contexts: int = CONTEXTS, arms: int = ARMS
) -> Floats:
    """Return score(x, a) - penalty / 2 mean_i 1{x, a} (r w)^2, w = 1 / max(mu, floor)^alpha, [R, S, A]."""
    score_RSA = score_table(data, contexts, arms, alpha=alpha, floor=floor)
    weight_RN = 1.0 / np.maximum(data.propensity_RN, floor) ** alpha
    square_RN = data.reward_RN**2 * weight_RN
    spread_RSA = score_table(data, contexts, arms, alpha=alpha, floor=floor, reward_RN=square_RN)
    return score_RSA - penalty / 2 * spread_RSA


def regrets(
    seeds: Seeds, logger: str, n: int, learners: Mapping[str, tuple[float, float, float]]
) -> Iterator[tuple[str, Floats]]:
    """Yield the regret of each learner in each world, mean over 8 logs."""
    found: dict[str, list[float]] = {name: [] for name in learners}
    for seed in seeds:
        bandit = logged_bandit(
            contexts=CONTEXTS, arms=ARMS, temperature=LOGGERS[logger], skill=0.2, seed=seed
        )
        data = bandit.log(keys(tuple(range(LOGS)), f"{NAME} {seed}"), n)
        best = float(bandit.value(best_policy(bandit.reward_SA[None]))[0])
        for name, (alpha, floor, penalty) in learners.items():
            pi_RSA = best_policy(pessimistic(data, alpha, floor, penalty))
            found[name].append(best - float(bandit.value(pi_RSA).mean()))
    for name, regret in found.items():
        yield name, np.array(regret)


def users(seed: int, alike: bool) -> tuple[LoggedBandit, Floats, Floats]:
    """Return users logged at random loads, and both metrics' means [S, A]: satisfaction falls with the load,
    revenue rises, by how much differs among users unless they are alike.
    """
    rng = generator(seed, NAME)
    load_A, share_2S1 = np.linspace(0, 1, LOADS), rng.uniform(0.05, 0.95, size=(2, USERS, 1))
    patience_S1, worth_S1 = np.full_like(share_2S1, 0.5) if alike else share_2S1
    happy_SA, revenue_SA = 0.9 - 0.8 * load_A * (1 - patience_S1), 0.1 + 0.8 * load_A * worth_S1
    plain = logged_bandit(contexts=USERS, arms=LOADS, temperature=0.3, seed=seed)
    return dataclasses.replace(plain, reward_SA=happy_SA), happy_SA, revenue_SA


def gains(seeds: Seeds, alike: bool, n: int) -> Iterator[tuple[str, Floats]]:
    """Yield each learner's gains in satisfaction and revenue over the middle load for all, [R, 2]."""
    found: dict[str, list[Floats]] = {"IPS": [], "DR": [], "best load for all": []}
    for seed in seeds:
        bandit, *metrics = users(seed, alike)
        data = bandit.log(keys(tuple(range(LOGS)), f"{NAME} load {seed}"), n)
        chance_RN = metrics[1][data.context_RN, data.action_RN]
        paid_RN = generator(seed, f"{NAME} revenue").random(chance_RN.shape) < chance_RN
        both_RN = (data.reward_RN + paid_RN) / 2
        model_RSA = mean_model(data, USERS, LOADS, reward_RN=both_RN)
        score = {
            "IPS": score_table(data, USERS, LOADS, reward_RN=both_RN),
            "DR": score_table(data, USERS, LOADS, model_RSA=model_RSA, reward_RN=both_RN),
        }
        score["best load for all"] = np.broadcast_to(score["DR"].sum(1, keepdims=True), score["DR"].shape)
        for name, g_RSA in score.items():
            change_RSA = best_policy(g_RSA) - np.eye(LOADS)[LOADS // 2]
            found[name].append(np.array([(change_RSA * x_SA).sum(-1).mean() for x_SA in metrics]))
    for name, gain in found.items():
        yield name, np.stack(gain)


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Yield regrets by logger and learner, and gains by kind of users and learner, by logged rounds."""
    for (logger, n), learners in LEARNERS.items():
        for name, regret_R in regrets(seeds, logger, n, dict(zip(NAMES, learners, strict=True))):
            yield columns(seeds, world=logger, n=n, learner=name, regret=regret_R)
    for n in SIZES:
        for alike in (False, True):
            for name, gain_R2 in gains(seeds, alike, n):
                given = {"world": "users alike" if alike else "users", "n": n, "learner": name}
                yield columns(seeds, **given, satisfaction=gain_R2[:, 0], revenue=gain_R2[:, 1])


EXPERIMENT = Experiment(
    NAME,
    question="What do clipping, smoothing and doubly robust scores add to policies learned from logs?",
    source="Aouali et al. (2023), exponential smoothing; ad-load balancing via off-policy learning (2023)",
    differs="tables over 10 contexts or 40 users; exact regrets; exponents, floors, penalties tuned",
    compute=of_seeds(NAME, rows, SEEDS, {"logs": LOGS}),
    keys=("run", "seed", "world", "n", "learner"),
    metrics=("regret", "satisfaction", "revenue"),
    margins={"regret that counts as equal": SAME, "gain of a metric": 0.0},
    figure=Plot(
        "final by setting",
        x="n: logged rounds",
        y="regret",
        arm=("world", "learner"),
        where={"world": ("mild", "peaked")},
        says="Shows regret against logged rounds in random bandits of 10 contexts and 6 arms, logged by a "
        "policy of high (mild) or low temperature (peaked): IPS divides rewards by the logged chances; "
        "clipped raises small chances to a floor; smoothed takes them to a power below 1; all have a "
        "variance penalty.",
    ),
    systems={
        "Exponential smoothing for OPL": Part(
            claims=(
                "clipping-gains-nothing-from-mild-logs",
                "smoothing-learns-better-than-clipping",
                "plain-ips-loses-to-tuned-smoothing-from-peaked-logs",
            )
        ),
        "Ad-load balancing via OPL": Part(
            claims=("learned-load-improves-both-metrics", "no-load-improves-both-metrics-of-users-alike")
        ),
    },
)

AOUALI = "Aouali et al. (2023), Exponential smoothing for off-policy learning"
EXPERIMENT.claim(
    "clipping-gains-nothing-from-mild-logs",
    "From logs of temperature 0.4 plain and clipped IPS at its best floor have the same regret within .005.",
    source=AOUALI,
).equal(
    "regret", {"learner": "IPS"}, {"learner": "clipped"}, within=SAME, over={"world": "mild", "n": SIZES[:2]}
)

EXPERIMENT.claim(
    "smoothing-learns-better-than-clipping",
    "From peaked logs smoothed IPS has less regret than clipped IPS, both with a variance penalty and at "
    "their best exponent and floor.",
    source=AOUALI,
).compare("regret", {"learner": "clipped"}, {"learner": "smoothed"}, over={"world": "peaked", "n": SIZES})

EXPERIMENT.claim(
    "plain-ips-loses-to-tuned-smoothing-from-peaked-logs",
    "From peaked logs smoothed IPS has less regret than plain IPS.",
    source=f"{AOUALI}; the off-switch, exponent 1",
).compare("regret", {"learner": "IPS"}, {"learner": "smoothed"}, over={"world": "peaked", "n": SIZES})

ADS = "Ad-load balancing via off-policy learning in a content marketplace (2023)"
BOTH = {"learner": ("IPS", "DR"), "n": SIZES[1:]}


@EXPERIMENT.claim("learned-load-improves-both-metrics", source=ADS)
def learned_load_improves_both_metrics(table: pd.DataFrame) -> Evidence:
    """From 3000 and 10000 rounds loads learned by IPS and by DR raise satisfaction and revenue over the
    middle load for all.
    """
    found = {name: level(table, name, {**BOTH, "world": "users"}) for name in ("satisfaction", "revenue")}
    return must_exceed(merged(**found), 0.0, "gain of a metric")


def least_gain(table: pd.DataFrame) -> pd.Series:
    """Return the lesser of the gains of both metrics."""
    return table[["satisfaction", "revenue"]].min(axis=1, skipna=False)


EXPERIMENT.claim(
    "no-load-improves-both-metrics-of-users-alike",
    "Where all users are alike one of the two metrics falls.",
    source="this project: the off-switch",
).compare(least_gain, {**BOTH, "world": "users alike"}, below=True)
