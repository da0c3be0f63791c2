"""Ad load by policies learned from logs, judged by two metrics, against the best rule without contexts."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Plot,
    Seeds,
    columns,
    exact,
    level,
    merged,
    must_exceed,
    of_seeds,
    short_of,
)
from envs.arrays import Floats
from envs.logged_bandit import LoggedBandit, logged_bandit
from testbed.offline.bandits import best_policy, fit_softmax, mean_model, score_table
from testbed.rng import generator, keys

NAME = "logged-ad-load"
SEEDS, CONTEXTS, ARMS = 24, 8, 4
SIZES = (200, 800, 3200, 12800)
MARGIN = 0.02


def bandit(seed: int) -> tuple[LoggedBandit, Floats, Floats]:
    """A bandit logged by a soft policy; satisfaction falls and revenue rises in the ad load, users differ.

    Returned with both metrics' means [S, A]; rewards are those of the satisfaction.
    """
    rng = generator(seed, "users")
    load_A, patience_S1 = np.linspace(0, 1, ARMS), rng.uniform(0.1, 0.9, size=(CONTEXTS, 1))
    worth_S1 = rng.uniform(0.1, 0.9, size=(CONTEXTS, 1))
    happy_SA = 0.9 - 0.8 * load_A * (1 - patience_S1)
    revenue_SA = 0.1 + 0.8 * load_A * worth_S1
    plain = logged_bandit(contexts=CONTEXTS, arms=ARMS, temperature=0.3, seed=seed)
    return dataclasses.replace(plain, reward_SA=happy_SA), happy_SA, revenue_SA


def static_rule(happy_SA: Floats, revenue_SA: Floats) -> Floats:
    """The load with the best mean of both metrics that is the same for all users, [S, A]."""
    best = (happy_SA + revenue_SA).mean(0).argmax()
    return np.broadcast_to(np.eye(ARMS)[best], happy_SA.shape)


def learned(seed: int, n: int, kind: str) -> Floats:
    """The best table by IPS or DR of the mean of both metrics, [S, A]."""
    asked, _, revenue_SA = bandit(seed)
    data = asked.log(keys((seed,), "ad-load"), n)
    paid_RN = generator(seed, "revenue").random((1, n)) < revenue_SA[data.context_RN, data.action_RN]
    both_RN = (data.reward_RN + paid_RN) / 2
    model = mean_model(data, CONTEXTS, ARMS, reward_RN=both_RN) if kind == "DR" else None
    return best_policy(score_table(data, CONTEXTS, ARMS, model_RSA=model, reward_RN=both_RN))[0]


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return exact gains of both metrics over the static rule, by logged rounds and estimator."""
    for n in SIZES:
        for kind in ("IPS", "DR"):
            gains = []
            for seed in seeds:
                _, happy_SA, revenue_SA = bandit(seed)
                change_SA = learned(seed, n, kind) - static_rule(happy_SA, revenue_SA)
                gains.append([(change_SA * metric_SA).sum(-1).mean() for metric_SA in (happy_SA, revenue_SA)])
            happy_R, revenue_R = np.array(gains).T
            found = {"satisfaction": happy_R, "revenue": revenue_R, "both": (happy_R + revenue_R) / 2}
            yield columns(seeds, n=n, estimator=kind, **found)


EXPERIMENT = Experiment(
    NAME,
    question="Do policies learned from logs improve satisfaction and revenue over a static load?",
    source="Ad-load balancing via off-policy learning in a content marketplace (2023)",
    differs="random users in 8 contexts, 4 loads; gains are exact, where the source ran an A/B test",
    compute=of_seeds(NAME, rows, SEEDS),
    keys=("run", "seed", "n", "estimator"),
    metrics=("satisfaction", "revenue", "both"),
    margins={"mean of a metric": MARGIN},
    figure=Plot("final by dial", x="n: logged rounds", y="both: gain, mean of both", arm=("estimator",)),
    systems=("Ad-load balancing via OPL",),
)


@EXPERIMENT.claim(source="policy gradient of a linear objective over the simplex")
def softmax_policies_climb_to_the_best_table() -> Evidence:
    """Gradient steps on sum pi g raise it at every step, never beyond the best table's, and with one feature
    per pair come within 2 % of it.
    """
    gaps, features = [], np.eye(CONTEXTS * ARMS).reshape(CONTEXTS, ARMS, -1)
    g_RSA = np.stack([generator(s, "scores").normal(size=(CONTEXTS, ARMS)) for s in range(6)])
    best_R = (best_policy(g_RSA) * g_RSA).sum((1, 2))
    last_R = g_RSA.mean(-1).sum(-1)
    for steps in (1, 3, 10, 100, 400):
        now_R = (fit_softmax(g_RSA, features, steps=steps, rate=1.0) * g_RSA).sum((1, 2))
        gaps += [*(last_R - now_R), *(now_R - best_R)]
        last_R = now_R
    return exact(
        [*gaps, *(short_of(share, 0.98) for share in last_R / best_R)], 1e-9, "largest loss or excess"
    )


@EXPERIMENT.claim()
def learned_load_improves_both_metrics(table: pd.DataFrame) -> Evidence:
    """Learned from 12800 rounds by DR, the policy raises satisfaction and revenue by 0.02 each."""
    where = {"n": SIZES[-1], "estimator": "DR"}
    found = {metric: level(table, metric, where) for metric in ("satisfaction", "revenue")}
    return must_exceed(merged(**found), MARGIN, "gain of a metric")


EXPERIMENT.claim(
    "learned-load-improves-the-mean-of-both",
    "From 800 rounds on, DR's policy raises the mean of both metrics by 0.02.",
).compare("both", {"n": SIZES[1:], "estimator": "DR"}, by=MARGIN)

EXPERIMENT.claim(
    "dr-needs-fewer-rounds-than-ips", "From 200 rounds DR's policy gains 0.02 more than that of IPS."
).compare("both", {"estimator": "DR"}, {"estimator": "IPS"}, by=MARGIN, over={"n": 200})
