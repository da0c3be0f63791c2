"""Learners from logs on the same random worlds: one step, IQL, pessimism, gated updates, a learned model."""

from analysis.experiments.offline import gated_updates
from analysis.lab import Plot, Seeds
from analysis.worlds.offline_worlds import DISCOUNT
from analysis.worlds.pilots import Grid, TunedArms, ask
from envs.arrays import Floats
from testbed.offline.models import pessimistic_q, value_consistent_model
from testbed.offline.tabular_offline import awr, clone, fitted_q, greedy, iql, policy_q
from testbed.rng import generator

NAME = "offline-family"
SEEDS, PILOTS, SIZES, RANKS = 512, 48, (40, 300), (1.0, 2.0, 4.0)
MARGIN = 0.02
"""Score, 1 being the optimum's lead over the uniform policy. Set before the table was made."""
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


def learn(seeds: Seeds, arm: str, logged: int, **knobs: float) -> dict[str, Floats]:
    """Return the score of a learner from logs of a logger that takes the best action in three of ten, [R]."""
    if arm == "gated updates":
        named = {"rate": knobs["rate"], "expectile": knobs["tau"], "gain": knobs["gain"]}
        return {"score": gated_updates.learn(seeds, "gated", logged=logged, **named)["end"]}
    worlds, log, pi_RSA = gated_updates.given(tuple(seeds), logged)
    mu_RSA, moves_RSAS = clone(log.visit_RSA), log.moves_RSAS
    q_RSA = policy_q(moves_RSAS, log.reward_RSA, mu_RSA, DISCOUNT)
    if arm == "one step":
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
    NAME,
    SEEDS,
    ("score",),
    question="From the same logs, which offline learner ends above a single step of improvement?",
    source="this project; IQL (2022), DCPPO (2023), RL-100 (2025), VIPO (2025), of which a claim names one",
    differs="random worlds of 8 states and 4 actions, tables; pessimism of DCPPO's kind, with logged rewards",
    margins={"score": MARGIN},
    figure=Plot(
        "strips",
        x="score",
        y="arm",
        panel="logged: logged steps",
        says="Shows the score (0 the uniform policy, 1 the optimum) of learners from the same logs of random "
        "worlds of 8 states and 4 actions: cloning; one greedy step in the log's own Q; fitted Q over logged "
        "actions, also with less for rare ones (pessimism); IQL; updates that a model of the log must "
        "approve (gated updates, RL-100); plans in a low-rank model that agrees with the log's value (VIPO).",
    ),
)
for _name, _arm, _says in (
    ("fitted-q-in-the-log-ends-above-one-step", "fitted Q in the log",
     "Fitted Q over logged actions"),
    ("pessimism-ends-above-one-step", "pessimism",
     "Fitted Q that takes a multiple of 1/sqrt(visits) off rewards"),
    ("iql-ends-above-one-step", "IQL",
     "IQL"),
    ("gated-updates-ends-above-one-step", "gated updates",
     "Policy updates that a model of the log must approve (RL-100)"),
    ("consistent-model-ends-above-one-step", "consistent model",
     "Planning in a low-rank model that agrees with the log's value (VIPO)"),
):  # fmt: skip
    _statement = (
        f"{_says} ends 0.02 above one greedy step in the log's own Q, from 40 and from 300 steps, tuned."
    )
    ask(EXPERIMENT, _name, _statement, _arm, "one step", MARGIN, "score", over={"logged": SIZES})
