"""PQN: parallel Q-learning on normalized features, without replay, against replay and a target network."""

from functools import cache

import numpy as np

from analysis.lab import Floats, Grid, TunedArms, asks, by_world, generator, keys, strips
from analysis.worlds.offline_worlds import chance_and_best
from envs import infinite_horizon
from envs.finite_mdp import FiniteMDP
from envs.mdps import garnet
from testbed.offline.tabular_offline import greedy

NAME = "layer-norm-td"
SEEDS, WORLDS, PILOTS, FRESH, UPDATES, EVERY, BATCH, WIDTH = 192, 8, 48, 670_000, 500, 25, 64, 32
"""Units of a run, random worlds averaged in a unit, pilot worlds, offset past the worlds of other tables;
updates, those between scores, steps that an update reads; features of a pair, half as many as pairs."""
SCORE = 0.02
"""Margin of the mean score over training, 1 being the optimum's lead over the uniform policy. Set before the
table was made, as the grids were."""
RATE = {"step_size": tuple(2.0**i for i in range(-7, 7))}
WAITS = {"target_every": (8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 500.0)}
ARMS: dict[str, Grid] = {
    "parallel, normalized": RATE,
    "parallel, raw": RATE,
    "replay and target, normalized": {**RATE, **WAITS},
    "replay and target, raw": {**RATE, **WAITS},
}
"""Each arm makes 500 updates from 32,000 steps of the world: from a step of each of 64 copies, or from 64
replayed steps of one copy, which plays 64 before each update. A target network with period 500 never leaves
the start, so that no grid goes beyond."""


@cache
def given(seed: int) -> tuple[FiniteMDP, float, float, dict[str, Floats]]:
    """Return a world, the values of the uniform policy and of the best, and features [S, A, F] by name.

    Raw features are normal, and those of a pair share a lognormal factor of spread 1; LayerNorm subtracts a
    pair's mean and divides by its deviation. Their squares add up to 1 in the mean.
    """
    world, rng = garnet(states=16, actions=4, discount=0.9, seed=seed, horizon=20), generator(seed, NAME)
    raw_SAF = rng.normal(size=(16, 4, WIDTH)) * rng.lognormal(size=(16, 4, 1))
    normal_SAF = raw_SAF - raw_SAF.mean(-1, keepdims=True)
    made = {"raw": raw_SAF, "normalized": normal_SAF / normal_SAF.std(-1, keepdims=True)}
    features = {name: x / np.sqrt((x**2).sum(-1).mean()) for name, x in made.items()}
    return world, *chance_and_best(world), features


@by_world("score")
def learn(seed: int, arm: str, step_size: float, target_every: float = 0.0) -> float:
    """Return the score of the greedy policy, mean over 20 evaluations in training; Q is linear."""
    from analysis.kernels.linear_td import parallel_q
    from testbed.offline.replay_control import replay_q

    (world, low, high, made), key_1 = given(seed + FRESH), keys((seed + FRESH,), NAME)
    how, feature_SAF = arm.split(", ")
    if how == "parallel":
        weight_KF = parallel_q(
            world, made[feature_SAF], key_1, players=BATCH, steps=UPDATES, every=EVERY, step_size=step_size,
            epsilon=0.3,
        )[:, 0]  # fmt: skip
        q_KSA = np.einsum("kf,saf->ksa", weight_KF, made[feature_SAF])
    else:
        q_KSA = replay_q(
            world, key_1, steps=UPDATES * BATCH, every=EVERY * BATCH, updates=1 / BATCH, batch=BATCH,
            step_size=step_size, target_every=target_every, epsilon=0.3, feature_SAF=made[feature_SAF],
        )[0][0]  # fmt: skip
    value_K = infinite_horizon.value(world, greedy(np.nan_to_num(q_KSA)))
    return float(((value_K - low) / (high - low)).mean())


EXPERIMENT = TunedArms(ARMS, learn, "score", PILOTS, endless={"target_every": (500.0,)}).experiment(
    NAME, SEEDS, ("score",), {"updates": UPDATES, "worlds": WORLDS}, worlds=WORLDS,
    question="With LayerNorm, do parallel copies of the world replace replay and a target network?",
    source="Gallici et al. (2025), Simplifying deep temporal difference learning",
    differs="fixed random features, half as many as pairs, in place of a network; no weight decay; time is "
    "counted in updates and steps; a unit test shows that LayerNorm bounds the l2 penalty which linear TD "
    "needs",
    margins={"score": SCORE},
    figure=strips("score: mean score over training", "Shows the score (0 the uniform policy, 1 the optimum), "
        "averaged over 500 updates of linear Q-learning on random MDPs; an update reads a step of each of 64 "
        "parallel copies of the world, or 64 replayed steps of one copy, with a target network; features are "
        "raw or normalized by LayerNorm."),
    systems={"PQN (Simplifying deep TD)": "fixed features; seconds are not measured"},
)  # fmt: skip
EQUALLY = "In as many updates and as many steps of the world, each at its best settings, parallel copies"
asks(EXPERIMENT,
    ("normalized-parallel-copies-replace-replay-and-target", f"{EQUALLY} on normalized features have a mean "
     "score over training at most 0.02 below one copy with replay and a target network on raw features.",
     "parallel, normalized", "replay and target, raw", -SCORE),
    ("layer-norm-makes-up-for-replay-and-target", f"{EQUALLY} on normalized features have a mean score over "
     "training at most 0.02 below one copy with replay and a target network on the same features.",
     "parallel, normalized", "replay and target, normalized", -SCORE),
    ("layer-norm-helps-parallel-copies", f"{EQUALLY} on normalized features have a mean score over training "
     "0.02 above those on raw ones.", "parallel, normalized", "parallel, raw", SCORE),
    outcome="score",
)  # fmt: skip
