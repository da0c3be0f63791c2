"""Learners from the same logs of random worlds: one step, IQL, pessimism, gated updates, a learned model."""

from functools import cache

import numpy as np

from analysis.lab import Floats, Grid, Groups, Plot, Seeds, TunedArms, asks, generator
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, random_worlds
from envs.logged_data import Counts
from testbed.offline.improvement import softmax
from testbed.offline.models import pessimistic_q, value_consistent_model
from testbed.offline.tabular_offline import awr, clone, fitted_q, greedy, iql, policy_q

NAME = "offline-family"
SEEDS, PILOTS, SIZES, RANKS = 512, 48, (40, 300), (1.0, 2.0, 4.0)
LOGS, UPDATES, SHARE = "gated-updates", 10, 0.3
"""Name of the random stream of the logs; updates under RL-100's gate; probability that the logger takes the
best action instead of a random one."""
MARGIN = 0.02
"""Margin of the score, 1 being the optimum's lead over the uniform policy. Set before the table was made."""
ARMS: dict[str, Grid] = {
    "cloning": {},
    "one step": {},
    "fitted Q in the log": {},
    "pessimism": {"scale": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)},
    "IQL": {"tau": (0.5, 0.7, 0.9, 0.99), "beta": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)},
    "gated updates": {"rate": (0.3, 1.0, 3.0, 10.0, 30.0), "tau": (0.1, 0.3, 0.5, 0.7),
                      "gain": (-0.1, -0.05, 0.0, 0.05, 0.2)},
    "consistent model": {"rank": RANKS, "weight": (0.01, 0.1, 1.0, 10.0)},
}  # fmt: skip
"""IQL's expectile and inverse temperature; RL-100's gate; VIPO's rank and weight of the logged value."""


@cache
def given(seeds: Seeds, logged: int) -> tuple[Worlds, Counts, Floats]:
    """Return random worlds, logs of `steps` steps, and the cloned policies."""
    worlds = random_worlds(seeds)
    mu_RSA = SHARE * worlds.best_RSA + (1 - SHARE) / worlds.reward_RSA.shape[-1]
    log = worlds.logged(mu_RSA, logged, seeds, LOGS)
    return worlds, log, clone(log.visit_RSA, 0.1)


def redrawn(log: Counts, seeds: Seeds, update: int) -> Counts:
    """Return a bootstrap sample of the log for one update."""
    found = []
    for seed, going_SAS in zip(seeds, log.going_RSAS, strict=True):
        chance_X = going_SAS.ravel() / going_SAS.sum()
        drawn_X = generator(seed, f"{LOGS} redraw", update).multinomial(int(going_SAS.sum()), chance_X)
        found.append(drawn_X.reshape(going_SAS.shape).astype(np.float64))
    going_RSAS = np.stack(found)
    return Counts(going_RSAS.sum(-1), going_RSAS, log.reward_RSA)


def critic(log: Counts, expectile: float) -> Floats:
    """Return the advantages Q - V of implicit Q-learning; V(s) is the expectile of Q over logged actions."""
    value_RS = np.zeros(log.visit_RSA.shape[:2])
    for _ in range(40):
        q_RSA = log.reward_RSA + DISCOUNT * (log.moves_RSAS @ value_RS[:, None, :, None])[..., 0]
        for _ in range(3):
            above_RSA = q_RSA > value_RS[..., None]
            weight_RSA = log.visit_RSA * np.where(above_RSA, expectile, 1 - expectile) + 1e-9
            value_RS = (weight_RSA * q_RSA).sum(-1) / weight_RSA.sum(-1)
    return np.where(log.seen_RSA, q_RSA - value_RS[..., None], 0.0)


def modelled(log: Counts, pi_RSA: Floats) -> Floats:
    """Return the value of policies in the model estimated from the log, from a uniform start, [R]."""
    return (pi_RSA * policy_q(log.moves_RSAS, log.reward_RSA, pi_RSA, DISCOUNT)).sum(-1).mean(-1)


def approved(seeds: Seeds, logged: int, rate: float, tau: float, gain: float) -> Floats:
    """Return the policies after ten updates by IQL's critic, each only if a model predicts enough gain."""
    _, log, pi_RSA = given(seeds, logged)
    for update in range(UPDATES):
        step_RSA = critic(redrawn(log, seeds, update), tau)
        new_RSA, was_R = softmax(np.log(pi_RSA + 1e-12) + rate * step_RSA), modelled(log, pi_RSA)
        yes_R = modelled(log, new_RSA) - was_R > gain * np.abs(was_R)
        pi_RSA = np.where(yes_R[:, None, None], new_RSA, pi_RSA)
    return pi_RSA


def learn(seeds: Seeds, arm: str, logged: int, **knobs: float) -> Groups:
    """Return a learner's score from logs of a logger that takes the best action three times in ten, [R]."""
    worlds, log, pi_RSA = given(tuple(seeds), logged)
    mu_RSA, moves_RSAS = clone(log.visit_RSA), log.moves_RSAS
    q_RSA = policy_q(moves_RSAS, log.reward_RSA, mu_RSA, DISCOUNT)
    if arm == "gated updates":
        pi_RSA = approved(tuple(seeds), logged, **knobs)
    elif arm == "one step":
        pi_RSA = greedy(q_RSA, log.seen_RSA)
    elif arm == "IQL":
        tau_q_RSA, value_RS = iql(moves_RSAS, log.reward_RSA, mu_RSA, DISCOUNT, knobs["tau"])
        pi_RSA = awr(mu_RSA, tau_q_RSA - value_RS[..., None], knobs["beta"])
    elif arm in ("fitted Q in the log", "pessimism"):
        pi_RSA = greedy(pessimistic_q(log, DISCOUNT, knobs.get("scale", 0.0)), log.seen_RSA)
    elif arm == "consistent model":
        moves_RSAS = value_consistent_model(
            log, mu_RSA, (mu_RSA * q_RSA).sum(-1), DISCOUNT, rank=int(knobs["rank"]),
            consistency=knobs["weight"], rng=generator(seeds[0], NAME),
        )  # fmt: skip
        pi_RSA = greedy(fitted_q(moves_RSAS, log.reward_RSA, DISCOUNT, log.seen_RSA), log.seen_RSA)
    return {"score": worlds.score(pi_RSA)}


EXPERIMENT = TunedArms(ARMS, learn, "score", PILOTS, {"logged": SIZES}, {"rank": RANKS}).experiment(
    NAME, SEEDS, ("score",),
    question="From the same logs, which offline learner ends above a single step of improvement?",
    source="this project; IQL (2022), DCPPO (2023), RL-100 (2025) and VIPO (2025), one per claim",
    differs="random worlds of 8 states and 4 actions, tables; pessimism as in DCPPO, but with logged "
    "rewards",
    margins={"score": MARGIN},
    figure=Plot(
        "strips", x="score", y="arm", panel="logged: logged steps",
        says="Shows the score (0 the uniform policy, 1 the optimum) of learners from the same logs of "
        "random worlds of 8 states and 4 actions: cloning; one greedy step in the log's own Q; fitted Q "
        "over logged actions, also with lower rewards for rare ones (pessimism); IQL; updates that a model "
        "of the log must approve (gated updates, RL-100); plans in a low-rank model that agrees with the "
        "log's value (VIPO).",
    ),
)  # fmt: skip
asks(EXPERIMENT,
    ("fitted-q-in-the-log-ends-above-one-step", "Fitted Q over logged actions ends 0.02 above one greedy "
     "step in the log's own Q, from 40 and from 300 steps, tuned.", "fitted Q in the log", "one step"),
    ("pessimism-ends-above-one-step", "Fitted Q that takes a multiple of 1/sqrt(visits) off rewards ends "
     "0.02 above one greedy step in the log's own Q, from 40 and from 300 steps, tuned.", "pessimism",
     "one step"),
    ("iql-ends-above-one-step", "IQL ends 0.02 above one greedy step in the log's own Q, from 40 and from "
     "300 steps, tuned.", "IQL", "one step"),
    ("gated-updates-ends-above-one-step", "Policy updates that a model of the log must approve (RL-100) ends "
     "0.02 above one greedy step in the log's own Q, from 40 and from 300 steps, tuned.", "gated updates",
     "one step"),
    ("consistent-model-ends-above-one-step", "Planning in a low-rank model that agrees with the log's value "
     "(VIPO) ends 0.02 above one greedy step in the log's own Q, from 40 and from 300 steps, tuned.",
     "consistent model", "one step"),
    outcome="score", by=MARGIN, over={"logged": SIZES},
)  # fmt: skip
