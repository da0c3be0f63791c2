"""FlashSAC on random MDPs: few large updates of a critic with bounded norms, against soft Q-learning."""

from functools import lru_cache
from typing import Any

import numpy as np

from analysis.lab import Floats, Grid, TunedArms, asks, by_world, generator, keys, strips
from analysis.worlds.offline_worlds import chance_and_best
from analysis.worlds.pilots import Start
from envs import infinite_horizon
from envs.finite_mdp import FiniteMDP
from envs.mdps import garnet
from testbed.offline.improvement import softmax

NAME = "bounded-critics"
SEEDS, WORLDS, PILOTS, STEPS, STATES, ACTIONS, FEATURES = 768, 16, 64, 1500, 12, 4, 24
FRESH, NOISE = 3_000_000, 2.0
"""Offset of worlds past those of an earlier table, and standard deviation of rewards."""
SCORE = 0.02
"""Margin, a share of the optimum's lead over the uniform policy. Set before any table was made."""
TARGETS = tuple(2.0**i for i in range(1, 11))
KNOBS: Grid = {
    "step_size": tuple(2.0**i for i in range(-6, 5)), "temperature": tuple(2.0**i for i in range(-7, 3)),
}  # fmt: skip
OFTEN: Grid = {**KNOBS, "updates": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)}
FEW: Grid = {**KNOBS, "target_every": TARGETS}
BOUNDS = {"weight_bound": (1.0, 2.0, 4.0, 8.0), "error_bound": (0.125, 0.25, 0.5, 1.0, NOISE)}
ARMS: dict[str, Grid] = {
    "usual": OFTEN,
    "target network": {**OFTEN, "target_every": TARGETS},
    "few large, target network": FEW,
    "few large, bounded, target network": {
        **FEW, "step_size": tuple(2.0**i for i in range(-4, 9)), **BOUNDS
    },
    "model samples": {**OFTEN, "model_share": (0.05, 0.1, 0.2, 0.4, 0.8)},
    "on-policy replay": {**OFTEN, "on_policy": (0.25, 0.5, 1.0, 2.0, 4.0)},
}  # fmt: skip
"""Arms: 0.125 to 8 updates of 8 steps per step of the world; one update of 64 steps per four, without and
with bounds on the weights and on the error that a gradient carries. Other additions to the usual updates, for
comparison: samples of a learned model (MAD-TD), replay by the probability of trajectories (ARB). The bounds
act at every value: rewards alone exceed the loosest error in a third of the steps, and weights grow beyond 8.
Looser ones never bound anything where a target network was used."""
START = {"step_size": 0.25, "temperature": 0.125, "updates": 0.5}
PLACES = [
    {"step_size": step, "temperature": temperature, "target_every": every}
    for step in (0.25, 1.0, 4.0) for temperature in (0.0625, 0.25) for every in (8.0, 64.0)
]  # fmt: skip
FROM: dict[str, Start] = {
    "usual": [{**START, "step_size": step, "updates": more} for step in (0.125, 0.5) for more in (0.25, 2.0)],
    "target network": [{**at, "step_size": at["step_size"] / 4, "updates": 1.0} for at in PLACES],
    "few large, target network": PLACES,
    "few large, bounded, target network": [{**at, "weight_bound": 8.0, "error_bound": 1.0} for at in PLACES],
    "model samples": {**START, "model_share": 0.1},
    "on-policy replay": {**START, "on_policy": 1.0},
}
"""Settings from which the searches climb."""


@lru_cache(1024)
def given(seed: int) -> tuple[FiniteMDP, Floats, float, float]:
    """Return a world with noisy rewards, unit features [S, A, F], and values of uniform and best policy."""
    world = garnet(states=STATES, actions=ACTIONS, discount=0.9, seed=seed, horizon=24, noise_std=NOISE)
    feature_SAF = generator(seed, NAME).normal(size=(STATES, ACTIONS, FEATURES))
    feature_SAF /= np.linalg.norm(feature_SAF, axis=-1, keepdims=True)
    return world, feature_SAF, *chance_and_best(world)


@by_world("score", "size")
def learn(seed: int, arm: str, **knobs: Any) -> tuple[float, float]:
    """Return the final score of the soft policy, and the logarithm of the largest final |Q|."""
    from testbed.offline.replay_control import replay_q

    few = arm.startswith("few")
    seed += FRESH
    world, feature_SAF, low, high = given(seed)
    q_RKSA, _ = replay_q(
        world, keys((seed,), NAME), steps=STEPS, every=STEPS, feature_SAF=feature_SAF, batch=64 if few else 8,
        **({"updates": 0.25, **knobs} if few else knobs),
    )  # fmt: skip
    q_1SA = np.nan_to_num(np.clip(q_RKSA[:, -1], -1e9, 1e9))
    value_1 = infinite_horizon.value(world, softmax(q_1SA / knobs["temperature"]))
    return (value_1[0] - low) / (high - low), np.log10(np.abs(q_1SA).max() + 1e-9)


LOOSEST = {"weight_bound": (8.0,), "error_bound": (NOISE,)}
EXPERIMENT = TunedArms(ARMS, learn, "score", PILOTS, endless=LOOSEST, starts=FROM).experiment(
    NAME, SEEDS, ("score", "size"), {"steps": STEPS, "worlds": WORLDS}, worlds=WORLDS,
    question="Do few large updates earn more than many small ones, and what do bounds on the critic add?",
    source="FlashSAC (2026), arXiv:2604.04539; only public summaries were read",
    differs="random MDPs, linear soft Q-learning with half as many features as pairs; few large "
    "updates replay 16 steps per step of the world, usual ones as many as is best, 1 to 64",
    margins={"score": SCORE},
    figure=strips("score: final score", "Shows the final score (0 the uniform policy, 1 the optimum) of soft "
        "Q-learning with half as many linear features as pairs, on random MDPs; usual makes the best number "
        "of updates of 8 steps per step of the world; target network adds one to them; few large makes one "
        "of 64 steps per four steps; bounded also limits the critic's weights and the error that a gradient "
        "carries, at values that act; usual updates also come with samples of a learned model (as in MAD-TD) "
        "or with steps drawn by their trajectory's probability (as in ARB).", y="arm: "),
    systems={"FlashSAC": "linear critics; no clock"},
)  # fmt: skip

asks(EXPERIMENT,
    ("few-large-updates-with-a-target-end-above-many", "With target networks on both sides, few large "
     "updates end 0.02 above usual updates at their best number per step, all tuned.",
     "few large, target network", "target network"),
    ("bounds-add-to-few-large-updates", "With target networks on both sides, few large updates of a critic "
     "with bounded norms end 0.02 above those without bounds, all tuned.",
     "few large, bounded, target network", "few large, target network"),
    by=SCORE, outcome="score",
)  # fmt: skip
