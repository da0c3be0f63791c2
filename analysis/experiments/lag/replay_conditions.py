"""ERC: replay for an actor-critic without importance weights, with and without its two conditions."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import Experiment, Plot, combinations, dials, of_keys
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


EXPERIMENT.claim(
    "plain-replay-breaks-an-actor-critic",
    """Without conditions 32 replays per step lose more than 0.1 of the value that no replay has, in the
    first run and the replication.""",
).compare("value", {"replays": 0.0}, {"replays": 32.0}, by=LOST, over={"conditions": "plain"})


EXPERIMENT.claim(
    "both-conditions-keep-a-replaying-actor-critic-whole",
    """With both conditions 32 replays per step lose less than 0.1 of the value that no replay has, in
    the first run and the replication.""",
).compare("value", {"replays": 0.0}, {"replays": 32.0}, by=LOST, below=True, over={"conditions": "both"})


EXPERIMENT.claim(
    "no-repulsion-is-the-condition-that-counts",
    """Leaving out repulsion alone ends at 32 replays per step above both conditions by more than 0.05,
    in the first run and the replication.""",
    source="this project",
).compare("value", {"conditions": "no repulsion"}, {"conditions": "both"}, by=0.05, over={"replays": 32.0})


EXPERIMENT.claim(
    "a-replaying-actor-critic-equals-soft-q-learning",
    """With both conditions and 4 replays per step the actor-critic ends less than 0.1 below soft
    Q-learning, in the first run and the replication.""",
).compare(
    "value",
    {"conditions": "soft Q", "replays": 1.0},
    {"conditions": "both", "replays": 4.0},
    by=EQUAL,
    below=True,
)
