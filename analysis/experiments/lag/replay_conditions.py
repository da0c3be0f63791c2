"""ERC: replay for an actor-critic without importance weights, with and without its two conditions."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import Evidence, Experiment, Plot, combinations, dials, exceeds, of_keys, stays_below
from envs import infinite_horizon
from envs.mdps import chain
from testbed.offline import tabular
from testbed.offline.improvement import softmax

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
    from testbed.offline.replay import replay_actor_critic, replay_q

    world = chain(length=6, discount=0.95, horizon=30)
    best_SA = tabular.greedy(tabular.optimal_q(world))[0]
    low, high = (float(infinite_horizon.value(world, pi)) for pi in (np.full_like(best_SA, 0.5), best_SA))
    frame, key_N = combinations(key_R, conditions=ARMS, replays=[0.0, 4.0, 32.0])
    logits_RKSA, _ = replay_actor_critic(
        world, key_N, steps=STEPS, every=STEPS, actor_rate=RATE, critic_rate=RATE,
        replays=frame["replays"].to_numpy(), **dials(frame["conditions"], ARMS),
    )  # fmt: skip
    soft, key_N = combinations(key_R, conditions=["soft Q"], replays=[1.0])
    q_RKSA, _ = replay_q(world, key_N, steps=STEPS, every=STEPS, temperature=TEMPERATURE, step_size=RATE)
    both = pd.concat([frame, soft], ignore_index=True)
    pi_RSA = np.concatenate([softmax(logits_RKSA[:, -1]), softmax(q_RKSA[:, -1] / TEMPERATURE)])
    return both.assign(value=(infinite_horizon.value(world, pi_RSA) - low) / (high - low))


EXPERIMENT = Experiment(
    NAME,
    question="Do ERC's two conditions let an actor-critic replay?",
    source="Kobayashi (2024), Experience replayable conditions, of which a summary alone was read",
    differs="a table on a corridor; a step is out of reach when its action has less than 0.1 of the policy",
    compute=of_keys(NAME, make, SEEDS, {"steps": STEPS, "rate": RATE}),
    keys=("run", "conditions", "replays", "seed"),
    metrics=("value",),
    margins={"share of the value that counts as lost": LOST, "share that counts as equal": EQUAL},
    figure=Plot(
        "final by dial", x="replays: replays per step", y="value: value, share of the best",
        arm=("conditions",),
    ),
    systems=("ERC (Experience Replayable Conditions)",),
)  # fmt: skip


@EXPERIMENT.claim()
def plain_replay_breaks_an_actor_critic(table: pd.DataFrame) -> Evidence:
    """Without conditions 32 replays per step lose more than 0.1 of the value that no replay has, in the first
    run and the replication.
    """
    return exceeds(LOST, "value", {"replays": 0.0}, {"replays": 32.0}, conditions="plain")(table)


@EXPERIMENT.claim()
def both_conditions_keep_a_replaying_actor_critic_whole(table: pd.DataFrame) -> Evidence:
    """With both conditions 32 replays per step lose less than 0.1 of the value that no replay has, in the
    first run and the replication.
    """
    return stays_below(LOST, "value", {"replays": 0.0}, {"replays": 32.0}, conditions="both")(table)


@EXPERIMENT.claim(source="this project")
def no_repulsion_is_the_condition_that_counts(table: pd.DataFrame) -> Evidence:
    """Leaving out repulsion alone ends at 32 replays per step above both conditions by more than 0.05, in the
    first run and the replication.
    """
    return exceeds(0.05, "value", {"conditions": "no repulsion"}, {"conditions": "both"}, replays=32.0)(table)


@EXPERIMENT.claim()
def a_replaying_actor_critic_equals_soft_q_learning(table: pd.DataFrame) -> Evidence:
    """With both conditions and 4 replays per step the actor-critic ends less than 0.1 below soft Q-learning,
    in the first run and the replication.
    """
    return stays_below(
        EQUAL, "value", {"conditions": "soft Q", "replays": 1.0}, {"conditions": "both", "replays": 4.0}
    )(table)
