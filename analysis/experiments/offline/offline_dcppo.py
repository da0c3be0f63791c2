"""Pessimism with rewards recovered from logged discrete choices (DCPPO), against greedy planning."""

import itertools

import numpy as np

from analysis.lab import Experiment, Frame, Groups, Plot, Rows, Seeds, columns, level, of_seeds
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, random_worlds
from analysis.worlds.pilots import Grid, TunedArms, ask, asks
from testbed.offline.models import discrete_choice, pessimistic_q, recovered_reward
from testbed.offline.tabular_offline import clone, fitted_q, greedy

NAME = "offline-dcppo"
SEEDS, FEWER, PILOTS, FRESH = 1600, 256, 96, 680_000
"""Worlds of a run; worlds with 1,000 choices or more, where arms hardly differ; pilot worlds."""
SIZES = (50, 200, 1000, 5000)
PRIORS = tuple(2.0**i for i in range(-20, 10))
ARMS: dict[str, Grid] = {
    "greedy": {"prior": PRIORS},
    "greedy within the log": {"prior": PRIORS},
    "pessimistic": {"prior": PRIORS, "scale": tuple(2.0**i for i in range(-5, 6))},
}
"""Plans on estimated model and rewards: all actions, logged ones, or scale / sqrt(visits) taken off."""
DULLER, MORE = 0.3, 0.05
"""Factor on rewards, which makes choices noisy; margin of the score, 1 being the optimum's lead over the
uniform policy. Set on pilot worlds, before the table was made."""


def choosers(seeds: Seeds) -> Worlds:
    """Worlds in which action 0 pays nothing, which identifies the rewards of the others."""
    plain = random_worlds(seeds, noise_std=0.0)
    return plain.paying(DULLER * plain.reward_RSA * (np.arange(4) > 0))


def learn(seeds: Seeds, arm: str, steps: int, prior: float, scale: float = 0.0) -> Groups:
    """Return the score of planning from logged choices, [R]; no reward is logged."""
    seeds = tuple(seed + FRESH for seed in seeds)
    worlds = choosers(seeds)
    mu_RSA, _ = discrete_choice(worlds.moves_RSAS, worlds.reward_RSA, DISCOUNT)
    counts = worlds.logged(mu_RSA, steps, seeds, f"log of {steps}")
    reward_RSA = recovered_reward(clone(counts.visit_RSA, prior), counts.moves_RSAS, DISCOUNT)
    q_RSA, allowed_RSA = pessimistic_q(counts, DISCOUNT, scale, reward_RSA), counts.seen_RSA
    if arm == "greedy":
        q_RSA, allowed_RSA = fitted_q(counts.moves_RSAS, reward_RSA, DISCOUNT), np.ones_like(allowed_RSA)
    return {"score": worlds.score(greedy(q_RSA, allowed_RSA))}


TUNED = TunedArms(ARMS, learn, "score", PILOTS, {"steps": SIZES})


def rows(seeds: Seeds) -> Rows:
    """Yield scores by logged choices and arm, each tuned; fewer worlds where there are many choices."""
    for steps, arm in itertools.product(SIZES, ARMS):
        met = seeds if steps < 1000 else seeds[:FEWER]
        knobs, ends = TUNED.setting(arm, steps)
        yield columns(met, steps=steps, arm=arm, **learn(met, arm, steps, **knobs), **{"at end": int(ends)})


EXPERIMENT = Experiment(
    question="Can pessimism plan with rewards that are recovered from choices alone?",
    source="Li, Yang & Wang (2023), RLHF: learning dynamic choices via pessimism, arXiv:2305.18438",
    differs="random worlds, tables; logit shocks, an action of known reward, a bonus of 1/sqrt(n); choosers "
    "take every action, so coverage by a single policy is not tested",
    compute=of_seeds(NAME, rows, SEEDS, {"pilots": PILOTS}),
    keys=("run", "seed", "steps", "arm"), metrics=("score", "at end"), margins={"score": MORE},
    figure=Plot(
        "final by setting", x="steps: logged choices", y="score", arm=("arm",),
        says="Shows the score (0 the uniform policy, 1 the optimum) of plans against logged choices in "
        "random worlds, where rewards are not logged but recovered from the choices; greedy plans with all "
        "actions, greedy within the log with logged ones; pessimistic also takes a multiple of "
        "1/sqrt(visits) off their rewards.",
    ),
    systems={"DCPPO": "the rate alone: choosers take every action, so that coverage is complete"},
)  # fmt: skip

asks(EXPERIMENT,
    ("pessimism-beats-greed-on-rewards-recovered-from-50-choices", "From 50 choices pessimistic planning "
     "scores 0.05 more than greedy planning, both tuned.", "pessimistic", "greedy", {"over": {"steps": 50}}),
    ("pessimism-beats-greed-on-rewards-recovered-from-200-choices", "From 200 choices pessimistic planning "
     "scores 0.05 more than greedy planning, both tuned.", "pessimistic", "greedy", {"over": {"steps": 200}}),
    outcome="score", by=MORE,
)  # fmt: skip


def below_a_share_of_the_first_lack(table: Frame) -> Groups:
    """Return 0.15 of the first score's distance from 1, minus the last score's distance."""
    both = table[table["seed"].isin(table.loc[table["steps"] == 5000, "seed"])]
    early, late = (level(both, "score", {"arm": "pessimistic", "steps": n}) for n in (50, 5000))
    return {run: 0.15 * (1 - early[run]) - (1 - late[run]) for run in early}


ask(EXPERIMENT, "pessimistic-regret-falls-as-root-n", "From 50 to 5000 choices what pessimistic planning "
    "lacks falls at least to 15 %: as n^-0.4.", outcome=below_a_share_of_the_first_lack,
    gates={})  # fmt: skip
