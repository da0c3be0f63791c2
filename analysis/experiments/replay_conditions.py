"""ERC: replay for an actor-critic without importance weights, with and without its two conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.claims import Evidence
from analysis.comparisons import must_exceed, must_stay_below
from analysis.experiment import Experiment
from analysis.load import Table
from analysis.plot import Plot
from analysis.replication import combinations, difference, level, made_twice

NAME = "replay-conditions"
SEEDS, STEPS, RATE, TEMPERATURE = 120, 4000, 0.1, 0.1
ARMS = {
    "plain": {"repel": 1.0, "reach": 0.0},
    "no repulsion": {"repel": 0.0, "reach": 0.0},
    "within reach": {"repel": 1.0, "reach": 0.1},
    "both": {"repel": 0.0, "reach": 0.1},
}
"""Replayed steps push away from bad actions or not; those whose action has become unlikely are dropped or
not.
"""
LOST, EQUAL = 0.1, 0.1
"""Share of the way from the uniform policy's value to the best."""


def make(key_R: NDArray[np.uint64]) -> pd.DataFrame:
    """Return final values of the actor, by conditions and replays per step, and of soft Q-learning (SAC)."""
    from envs import infinite_horizon
    from envs.mdps import chain
    from testbed.offline import tabular
    from testbed.offline.improvement import softmax
    from testbed.offline.replay import replay_actor_critic, replay_q

    world = chain(length=6, discount=0.95, horizon=30)
    best_SA = tabular.greedy(tabular.optimal_q(world))[0]
    low, high = (float(infinite_horizon.value(world, pi)) for pi in (np.full_like(best_SA, 0.5), best_SA))
    frame, key_N = combinations(key_R, conditions=ARMS, replays=[0.0, 4.0, 32.0])
    dials: dict[str, Any] = {
        name: np.array([ARMS[c][name] for c in frame["conditions"]]) for name in ("repel", "reach")
    }
    logits_RKSA, _ = replay_actor_critic(
        world, key_N, steps=STEPS, every=STEPS, actor_rate=RATE, critic_rate=RATE,
        replays=frame["replays"].to_numpy(), **dials,
    )  # fmt: skip
    soft, key_N = combinations(key_R, conditions=["soft Q"], replays=[1.0])
    q_RKSA, _ = replay_q(world, key_N, steps=STEPS, every=STEPS, temperature=TEMPERATURE, step_size=RATE)
    both = pd.concat([frame, soft], ignore_index=True)
    pi_RSA = np.concatenate([softmax(logits_RKSA[:, -1]), softmax(q_RKSA[:, -1] / TEMPERATURE)])
    return both.assign(value=(infinite_horizon.value(world, pi_RSA) - low) / (high - low))


def compute() -> Table:
    """Return a row per run, conditions, replays and seed."""
    return made_twice(NAME, make, SEEDS, {"steps": STEPS, "rate": RATE})


EXPERIMENT = Experiment(
    NAME,
    question="Do ERC's two conditions let an actor-critic replay?",
    source="Kobayashi (2024), Experience replayable conditions, of which a summary alone was read",
    differs="a table on a corridor; a step is out of reach when its action has less than 0.1 of the policy",
    compute=compute,
    keys=("run", "conditions", "replays", "seed"),
    metrics=("value",),
    margins={"share of the value that counts as lost": LOST, "share that counts as equal": EQUAL},
    figure=Plot(
        "final by dial", x="replays", y="value", arm=("conditions",), x_label="replays per step",
        y_label="value, share of the best",
    ),
    systems=("ERC (Experience Replayable Conditions)",),
)  # fmt: skip


@EXPERIMENT.claim(
    "plain-replay-breaks-an-actor-critic",
    statement=(
        "Without conditions 32 replays per step lose more than 0.1 of the value that no replay has, in the "
        "first run and the replication."
    ),
)
def breaks(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the value lost, paired by seed, for each run."""
    plain = {"conditions": "plain"}
    lost = difference(table, "value", {**plain, "replays": 0.0}, {**plain, "replays": 32.0})
    return must_exceed(lost, LOST, "share of the value lost, less 0.1")


@EXPERIMENT.claim(
    "both-conditions-keep-a-replaying-actor-critic-whole",
    statement=(
        "With both conditions 32 replays per step lose less than 0.1 of the value that no replay has, in the "
        "first run and the replication."
    ),
)
def keeps(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the value lost, paired by seed, for each run."""
    both = {"conditions": "both"}
    lost = difference(table, "value", {**both, "replays": 0.0}, {**both, "replays": 32.0})
    return must_stay_below(lost, LOST, "0.1 less the share of the value lost")


@EXPERIMENT.claim(
    "no-repulsion-is-the-condition-that-counts",
    source="this project",
    statement=(
        "Leaving out repulsion alone ends at 32 replays per step above both conditions by more than 0.05, in "
        "the first run and the replication."
    ),
)
def repulsion(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the value gained, paired by seed, for each run."""
    first, second = ({"conditions": name, "replays": 32.0} for name in ("no repulsion", "both"))
    return must_exceed(
        difference(table, "value", first, second), 0.05, "share of the value gained, less 0.05"
    )


@EXPERIMENT.claim(
    "a-replaying-actor-critic-equals-soft-q-learning",
    statement=(
        "With both conditions and 4 replays per step the actor-critic ends less than 0.1 below soft "
        "Q-learning, in the first run and the replication."
    ),
)
def equals(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the shortfall, paired by seed, for each run."""
    soft = level(table, "value", {"conditions": "soft Q"})
    actor = level(table, "value", {"conditions": "both", "replays": 4.0})
    short = {run: soft[run] - actor[run] for run in soft}
    return must_stay_below(short, EQUAL, "0.1 less the shortfall")
