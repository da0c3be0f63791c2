"""FlashSAC on random MDPs: few large updates of a critic with bounded norms, against soft Q-learning."""

from functools import lru_cache
from typing import Any

import numpy as np

from analysis.lab import Floats, Grid, TunedArms, ask, by_world, generator, keys, strips
from analysis.worlds.offline_worlds import chance_and_best
from envs import infinite_horizon
from envs.finite_mdp import FiniteMDP
from envs.mdps import garnet
from testbed.offline.improvement import softmax

NAME = "bounded-critics"
SEEDS, WORLDS, PILOTS, STEPS, STATES, ACTIONS, FEATURES = 256, 16, 64, 1500, 12, 4, 24
SCORE = 0.02
"""Margin, a share of the optimum's lead over the uniform policy. Set before any table was made."""
KNOBS = {"step_size": (0.1, 0.3, 1.0, 3.0), "temperature": (0.01, 0.03, 0.1, 0.3, 1.0)}
OFTEN: Grid = {
    "step_size": (0.01, 0.03, *KNOBS["step_size"]), "temperature": KNOBS["temperature"],
    "updates": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0),
}  # fmt: skip
SELDOM: Grid = {"step_size": (0.03, *KNOBS["step_size"], 10.0), "temperature": KNOBS["temperature"]}
REFRESH: Grid = {"target_every": (3.0, 10.0, 30.0, 100.0, 300.0)}
ARMS: dict[str, Grid] = {
    "usual": {**KNOBS, "updates": (0.125, 0.25, 0.5, 2.0, 8.0)},
    "few large": KNOBS,
    "few large, bounded": {
        **KNOBS, "weight_bound": (10.0, 30.0, 100.0, 300.0), "error_bound": (1.0, 3.0, 10.0, 30.0),
    },
    "target network": {**OFTEN, "target_every": (10.0, 30.0, 100.0, 300.0, 1000.0)},
    "few large, target network": {**SELDOM, **REFRESH},
    "few large, bounded, target network": {
        **SELDOM, **REFRESH,
        "weight_bound": (3.0, 10.0, 30.0, 100.0), "error_bound": (0.3, 1.0, 3.0, 10.0, 30.0),
    },
    "model samples": {**OFTEN, "model_share": (0.05, 0.1, 0.2, 0.4, 0.8)},
    "on-policy replay": {**OFTEN, "on_policy": (0.25, 0.5, 1.0, 2.0, 4.0)},
}  # fmt: skip
"""Arms: 0.125 to 8 updates of 8 steps per step of the world; one update of 64 steps per four; the latter
with bounds on the weights and on the error that a gradient carries. Other additions to the usual updates, for
comparison: a target network, samples of a learned model (MAD-TD), replay by the probability of trajectories
(ARB)."""
FEW = {"step_size": 1.0, "temperature": 0.3, "target_every": 100.0}
FROM = {
    "few large, target network": FEW,
    "few large, bounded, target network": {**FEW, "weight_bound": 30.0, "error_bound": 10.0},
} | {
    arm: {"step_size": 0.3, "temperature": 0.1, "updates": 0.5, knob: start}
    for arm, knob, start in (
        ("target network", "target_every", 30.0),
        ("model samples", "model_share", 0.1),
        ("on-policy replay", "on_policy", 1.0),
    )
}


@lru_cache(1024)
def given(seed: int) -> tuple[FiniteMDP, Floats, float, float]:
    """Return a world with noisy rewards, unit features [S, A, F], and values of uniform and best policy."""
    world = garnet(states=STATES, actions=ACTIONS, discount=0.9, seed=seed, horizon=24, noise_std=2.0)
    feature_SAF = generator(seed, NAME).normal(size=(STATES, ACTIONS, FEATURES))
    feature_SAF /= np.linalg.norm(feature_SAF, axis=-1, keepdims=True)
    return world, feature_SAF, *chance_and_best(world)


@by_world("score", "size")
def learn(seed: int, arm: str, **knobs: Any) -> tuple[float, float]:
    """Return the final score of the soft policy, and the logarithm of the largest final |Q|."""
    from testbed.offline.replay_control import replay_q

    few = arm.startswith("few")
    world, feature_SAF, low, high = given(seed)
    q_RKSA, _ = replay_q(
        world, keys((seed,), NAME), steps=STEPS, every=STEPS, feature_SAF=feature_SAF, batch=64 if few else 8,
        **({"updates": 0.25, **knobs} if few else knobs),
    )  # fmt: skip
    q_1SA = np.nan_to_num(np.clip(q_RKSA[:, -1], -1e9, 1e9))
    value_1 = infinite_horizon.value(world, softmax(q_1SA / knobs["temperature"]))
    return (value_1[0] - low) / (high - low), np.log10(np.abs(q_1SA).max() + 1e-9)


EXPERIMENT = TunedArms(ARMS, learn, "score", PILOTS, starts=FROM).experiment(
    NAME, SEEDS, ("score", "size"), {"steps": STEPS, "worlds": WORLDS}, worlds=WORLDS,
    question="Do bounds of a critic's norms let few large updates earn more than many small ones?",
    source="FlashSAC (2026), arXiv:2604.04539; only public summaries were read",
    differs="random MDPs, linear soft Q-learning with half as many features as pairs; few large "
    "updates replay 16 steps per step of the world, usual ones as many as is best, 1 to 64",
    margins={"score": SCORE},
    figure=strips("score: final score", "Shows the final score (0 the uniform policy, 1 the optimum) of soft "
        "Q-learning with half as many linear features as pairs, on random MDPs; usual makes the best number "
        "of updates of 8 steps per step of the world; few large makes one of 64 steps per four steps; "
        "bounded also limits the critic's weights and the error that a gradient carries; both also come with "
        "a target network, and usual updates with samples of a learned model (as in MAD-TD) or with steps "
        "drawn by their trajectory's probability (as in ARB).", y="arm: "),
    systems={"FlashSAC": "linear critics; rates, temperatures and bounds in steps of three; the gain is "
             "that of few large updates, since with a target network no bound ever binds"},
)  # fmt: skip

ask(EXPERIMENT, "few-bounded-updates-with-a-target-end-above-many", "With target networks on both sides, few "
    "large updates of a critic with bounded norms end 0.02 above usual updates at their best number per "
    "step, all tuned.", "few large, bounded, target network", "target network", SCORE, "score",
    off={"arm": "few large, target network"})  # fmt: skip
