"""ERC: replay for an actor-critic without importance weights, with or without its two conditions."""

import itertools
from functools import cache
from typing import Any

import numpy as np

from analysis.lab import PILOT, Experiment, Grid, Plot, Rows, Seeds, asks, columns, inside, of_seeds, tuned
from envs import infinite_horizon
from envs.arrays import Floats
from envs.mdps import garnet
from testbed.offline import tabular_offline
from testbed.rng import keys

NAME = "replay-conditions"
SEEDS, PILOTS, FRESH, INNER, STEPS = 64, 32, 170_000, 2, 400
"""Worlds of a run, pilots, offset of seeds past those of an earlier table, runs in a world, their steps."""
RISING = (0.001, 0.0018, 0.003, 0.0055, 0.01, 0.018, 0.03, 0.055, 0.1, 0.18, 0.3, 0.55, 1.0)
RATES: Grid = {"actor_rate": RISING[2:], "critic_rate": RISING[4:]}
TRICKS: Grid = {**RATES, "repel": (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9), "reach": (0.02, 0.05, 0.1, 0.2)}
SOFT: Grid = {
    "temperature": (*RISING[4:], 1.8, 3.0),
    "step_size": (3e-5, 5.5e-5, 1e-4, 1.8e-4, 3e-4, 5.5e-4, *RISING[:9]),
}
FROM = [
    dict(zip(TRICKS, values, strict=True))
    for values in itertools.product((0.018, 0.1), (0.03, 0.18), (0.15, 0.6, 0.9), (0.02, 0.1))
]
REPLAYS = (4, 32)
"""Replayed steps per environment step; soft Q-learning makes as many updates."""
MARGIN = 0.05
"""Margin of the score, 0 being the uniform policy's value and 1 the best. Set before the table was made."""


def score(seeds: Seeds, arm: str, replays: int, **knobs: Any) -> Floats:
    """Return the score of the most likely final actions, mean of two runs in one random MDP per seed, [R]."""
    from testbed.offline.replay_control import replay_actor_critic, replay_q

    found = []
    for seed in (s + FRESH for s in seeds):
        world = garnet(
            states=12, actions=4, branching=3, seed=int(seed), discount=0.95, horizon=50, noise_std=1.0
        )
        best_SA = tabular_offline.greedy(tabular_offline.optimal_q(world))[0]
        low, high = (
            float(infinite_horizon.value(world, pi)) for pi in (np.full_like(best_SA, 0.25), best_SA)
        )
        key_R = keys(tuple(range(INNER)), f"{NAME} {seed}")
        if arm == "soft Q":
            last, _ = replay_q(world, key_R, steps=STEPS, every=STEPS, updates=float(replays), **knobs)
        else:
            last, _ = replay_actor_critic(
                world, key_R, steps=STEPS, every=STEPS, replays=float(replays), **knobs
            )
        value_R = infinite_horizon.value(world, tabular_offline.greedy(np.nan_to_num(last[:, -1])))
        found.append(float((value_R.mean() - low) / (high - low)))
    return np.array(found)


@cache
def settings(arm: str, replays: int) -> tuple[dict[str, float], bool]:
    """Return the best setting on pilot worlds, and whether it is at an end of its grid."""
    seeds = tuple(range(PILOT, PILOT + PILOTS))
    grid = {"plain": RATES, "both": TRICKS, "soft Q": SOFT}[arm]
    found, ends = tuned(
        lambda **knobs: float(score(seeds, arm, replays, **knobs).mean()), grid,
        start=FROM if arm == "both" else (),
    )  # fmt: skip
    if arm == "both":
        # At one end nothing is repelled and at the other hardly anything is excluded, so the grid cannot be
        # wider.
        _, ends = tuned(lambda **rates: float(score(seeds, arm, replays, **{**found, **rates}).mean()), RATES)
    return found, ends


def rows(seeds: Seeds) -> Rows:
    """Return scores by arm and replays per step, each tuned; "untuned" has the rates tuned without replay."""
    cells = [("plain", 0), *((arm, n) for arm in ("plain", "both", "soft Q") for n in REPLAYS)]
    for arm, replays in cells:
        knobs, ends = settings(arm, replays)
        yield columns(
            seeds,
            arm=arm,
            replays=replays,
            score=score(seeds, arm, replays, **knobs),
            **{"at end": int(ends)},
        )
    knobs, _ = settings("plain", 0)
    for replays in REPLAYS:
        found = {"score": score(seeds, "plain", replays, **knobs), "at end": 0}
        yield columns(seeds, arm="untuned", replays=replays, **found)


EXPERIMENT = Experiment(
    question="Does an actor-critic need ERC's conditions to replay, and equal soft Q-learning then?",
    source="Kobayashi (2024), Experience replayable conditions; only the abstract was read",
    differs="random tabular MDPs; the two conditions follow the abstract: repulsion from negative samples is "
    "scaled down, and samples whose action has become unlikely are dropped",
    compute=of_seeds(NAME, rows, SEEDS, {"steps": STEPS, "inner": INNER, "pilots": PILOTS}),
    keys=("run", "seed", "arm", "replays"), metrics=("score", "at end"), margins={"score": MARGIN},
    figure=Plot(
        "final by setting", x="replays: replays per step", y="score: score (1 optimal)", arm=("arm",),
        says="Shows the score of the final policy in random tabular MDPs (0 for uniform actions), by "
        "replayed steps per fresh one; the actor-critic replays without weights (plain), at the rates that "
        "are best without replay (untuned), or with both of ERC's conditions: a weaker push from bad "
        "samples, and none from actions that have become unlikely (both); soft Q-learning makes as many "
        "updates.",
    ),
    systems=("ERC (Experience Replayable Conditions)",),
)  # fmt: skip

INSIDE = {"tuned": inside(arm=("plain", "both", "soft Q"), replays=4)}
asks(EXPERIMENT,
    ("a-replaying-actor-critic-equals-soft-q-learning", "After the abstract alone: with both tricks and 4 "
     "replays a step A2C ends less than 0.05 below soft Q-learning with as many updates, each at its best "
     "setting of pilot worlds; so does plain replay.",
     ("both", "plain"), "soft Q", -MARGIN, {"over": {"replays": 4}, "gates": INSIDE}),
    ("both-conditions-add-to-tuned-replay", "After the abstract alone: at 4 replays a step both tricks end "
     "0.05 above plain replay, both tuned.", "both", "plain", MARGIN,
     {"over": {"replays": 4}, "gates": INSIDE}),
    ("replay-with-both-conditions-costs-no-score", "With both tricks and 4 replays a step A2C ends less than "
     "0.05 below A2C without replay, both tuned.",
     {"arm": "both", "replays": 4}, {"arm": "plain", "replays": 0}, -MARGIN),
    outcome="score",
)  # fmt: skip
