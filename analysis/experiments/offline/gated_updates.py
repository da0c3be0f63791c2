"""RL-100's offline stage: policy updates that a learned model must approve, on random worlds."""

from functools import cache

import numpy as np

from analysis.lab import Part, Plot, Seeds
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, random_worlds
from analysis.worlds.pilots import Grid, TunedArms, ask, inside
from envs.arrays import Floats
from envs.logged_data import Counts
from testbed.offline.improvement import softmax
from testbed.offline.tabular_offline import policy_q
from testbed.rng import generator

NAME = "gated-updates"
SEEDS, PILOTS, LOGGED, UPDATES = 960, 48, 40, 10
SHARE = 0.3
"""Chance that the logger takes the best action, in place of a random one."""
MARGIN = 0.02
"""Score, 1 being the optimum's lead over the uniform policy. Set before the table was made."""
RATES = {"rate": (0.3, 1.0, 3.0, 10.0, 30.0), "expectile": (0.1, 0.3, 0.5, 0.7)}
ARMS: dict[str, Grid] = {
    "cloned": {},
    "ungated": RATES,
    "gated": {**RATES, "gain": (-0.1, -0.05, 0.0, 0.05, 0.2)},
    "gated by chance": {**RATES, "gain": (0.25, 0.5, 0.75, 0.9)},
}
"""Step of an update, expectile of its critic; least gain by the model, of the value of the policy in use, or
the chance of a yes."""


@cache
def given(seeds: Seeds, logged: int) -> tuple[Worlds, Counts, Floats]:
    """Return random worlds, their logs of so many steps, and the cloned policies."""
    worlds = random_worlds(seeds)
    mu_RSA = SHARE * worlds.best_RSA + (1 - SHARE) / worlds.reward_RSA.shape[-1]
    log = worlds.logged(mu_RSA, logged, seeds, NAME)
    smoothed_RSA = log.visit_RSA + 0.1
    return worlds, log, smoothed_RSA / smoothed_RSA.sum(-1, keepdims=True)


def redrawn(log: Counts, seeds: Seeds, update: int) -> Counts:
    """Return a log of as many steps, drawn with replacement, for one update."""
    found = []
    for seed, going_SAS in zip(seeds, log.going_RSAS, strict=True):
        chance_X = going_SAS.ravel() / going_SAS.sum()
        drawn_X = generator(seed, f"{NAME} redraw", update).multinomial(int(going_SAS.sum()), chance_X)
        found.append(drawn_X.reshape(going_SAS.shape).astype(np.float64))
    going_RSAS = np.stack(found)
    return Counts(going_RSAS.sum(-1), going_RSAS, log.reward_RSA)


def critic(log: Counts, expectile: float) -> Floats:
    """Return the advantages Q - V of implicit Q-learning: V(s) the expectile of Q over logged actions."""
    value_RS = np.zeros(log.visit_RSA.shape[:2])
    for _ in range(40):
        q_RSA = log.reward_RSA + DISCOUNT * (log.moves_RSAS @ value_RS[:, None, :, None])[..., 0]
        for _ in range(3):
            above_RSA = q_RSA > value_RS[..., None]
            weight_RSA = log.visit_RSA * np.where(above_RSA, expectile, 1 - expectile) + 1e-9
            value_RS = (weight_RSA * q_RSA).sum(-1) / weight_RSA.sum(-1)
    return np.where(log.seen_RSA, q_RSA - value_RS[..., None], 0.0)


def modelled(log: Counts, pi_RSA: Floats) -> Floats:
    """Return the value of policies in the model that the log suggests, from a uniform start, [R]."""
    return (pi_RSA * policy_q(log.moves_RSAS, log.reward_RSA, pi_RSA, DISCOUNT)).sum(-1).mean(-1)


def learn(
    seeds: Seeds,
    arm: str,
    rate: float = 0.0,
    expectile: float = 0.5,
    gain: float = 0.0,
    logged: int = LOGGED,
) -> dict[str, Floats]:
    """Return the final score of a policy, and by how much it fell in all on its way, [R] each."""
    worlds, log, pi_RSA = given(tuple(seeds), logged)
    score_R = worlds.score(pi_RSA)
    lost_R = np.zeros(len(seeds))
    for update in range(UPDATES if rate else 0):
        step_RSA = critic(redrawn(log, seeds, update), expectile)
        new_RSA = softmax(np.log(pi_RSA + 1e-12) + rate * step_RSA)
        yes_R = np.ones(len(seeds), dtype=bool)
        if arm == "gated":
            was_R = modelled(log, pi_RSA)
            yes_R = modelled(log, new_RSA) - was_R > gain * np.abs(was_R)
        elif arm == "gated by chance":
            yes_R = np.array([generator(s, f"{NAME} coin", update).random() < gain for s in seeds])
        pi_RSA = np.where(yes_R[:, None, None], new_RSA, pi_RSA)
        new_R = worlds.score(pi_RSA)
        lost_R, score_R = lost_R + np.maximum(score_R - new_R, 0.0), new_R
    return {"end": score_R, "lost": lost_R}


EXPERIMENT = TunedArms(ARMS, learn, "end", PILOTS).experiment(
    NAME,
    SEEDS,
    ("end", "lost"),
    {"updates": UPDATES, "logged": LOGGED},
    question="Do offline updates that a learned model must approve end higher, and fall less on their way?",
    source="Lei et al. (2025), RL-100: the offline stage",
    differs="random tables, 40 logged steps; no imitation of images, no online stage",
    margins={"score": MARGIN},
    figure=Plot(
        "distribution",
        x="arm",
        y="end: final score",
        says="Shows the final score (0 the uniform policy, 1 the optimum) from 40 logged steps of random "
        "MDPs: cloned copies the log; ungated makes ten updates from there by implicit Q-learning; gated "
        "takes only those that gain enough in a model of the log; gated by chance those that a coin "
        "approves.",
    ),
    systems={"RL-100": Part("the gate of its offline stage; imitation and the online stage are open")},
)
CHANCE = {"arm": "gated by chance"}

for _name, _statement, _outcome, _first, _second, _off in (
    ("gated-updates-end-higher", "Ten updates that a model learned from the log must approve end with "
     "a score 0.02 above that of ten unconditional ones, rates and expectiles tuned.", "end", "gated",
     "ungated", CHANCE),
    ("gated-updates-end-above-their-clone", "Gated updates end 0.02 above the cloned policy that they start "
     "from.", "end", "gated", "cloned", None),
):  # fmt: skip
    ask(EXPERIMENT, _name, _statement, _first, _second, MARGIN, _outcome, off=_off)

EXPERIMENT.claim(
    "gated-updates-fall-less",
    "On their way gated updates lose 0.02 less of the score than ungated ones.",
    gates={"tuned": inside(arm=("gated", "ungated"))},
).compare("lost", {"arm": "gated"}, {"arm": "ungated"}, by=-MARGIN, below=True, off=CHANCE)
