"""PPO on fresh episodes against Q-learning from replay, at equal steps: which one stays at its best?"""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from analysis.kernels.mechanisms import tightrope
from analysis.lab import (
    PILOT,
    Experiment,
    Floats,
    Grid,
    Keys,
    Part,
    Plot,
    Rows,
    asks,
    columns,
    of_keys,
    tuned,
)  # fmt: skip
from envs.finite_mdp import FiniteMDP
from testbed.offline.improvement import outer_loop
from testbed.offline.tabular_offline import greedy
from testbed.rng import keys

NAME = "fresh-against-replayed"
SEEDS, CONTEXTS, HORIZON, EPISODES, POINTS = 128, 8, 16, 20, 30
FEATURES, DRAWS, UPDATES = 32, 4, (1.0, 8.0)
"""Random features of length 1 for 64 pairs, in four draws; and replayed steps per step."""
NOISE = 3.0
"""Standard deviation of rewards where both are tuned: without noise both reach the optimum."""
GRIDS: dict[str, Grid] = {
    "PPO": {"step_size": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)},
    "table": {"step_size": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0), "epsilon": (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)},
}
MARGIN = 0.05
"""Margin, a share of the optimum's lead over random actions. Set before the table was made."""
ROPE, EXPERT_SA = tightrope(contexts=CONTEXTS, horizon=HORIZON)
WORLD = replace(ROPE, discount=0.9)
NOISY = replace(WORLD, noise="normal", noise_std=NOISE)


def scores(value_KR: Floats) -> Floats:
    """Return values as shares of the optimum's lead over random actions."""
    chance_SA = np.full_like(EXPERT_SA, 1 / WORLD.actions)
    best, low = (float(WORLD.value(pi_SA)) for pi_SA in (EXPERT_SA, chance_SA))
    return np.asarray((value_KR - low) / (best - low))


def fresh(key_R: Keys, world: FiniteMDP = WORLD, step_size: float = 20.0) -> Floats:
    """Return PPO's scores at every evaluation, [K, R]."""
    more = {"episodes": EPISODES, "iterations": POINTS, "passes": 8}
    return scores(outer_loop(world, key_R, step_size=step_size, **more))


def replayed(
    key_R: Keys,
    updates: float,
    feature_SAF: Floats | None = None,
    world: FiniteMDP = WORLD,
    **settings: Any,
) -> Floats:
    """Return the scores of Q-learning from replay at every evaluation, [K, R]."""
    from testbed.offline.replay_control import replay_q

    length, settings = EPISODES * HORIZON, {"epsilon": 0.2, **settings}
    q_RKSA, _ = replay_q(
        world,
        key_R,
        steps=POINTS * length,
        every=length,
        updates=updates,
        feature_SAF=feature_SAF,
        **settings,
    )
    # A diverged critic has no greedy action: it takes the first.
    known_KRSA = np.moveaxis(np.nan_to_num(q_RKSA, posinf=0.0, neginf=0.0), 1, 0)
    return scores(np.stack([WORLD.value(greedy(q_RSA)) for q_RSA in known_KRSA]))


def noisy(key_R: Keys, learner: str, **setting: Any) -> Floats:
    """Return the scores of a tabular learner under noisy rewards at one setting, [K, R]."""
    if learner == "PPO":
        return fresh(key_R, NOISY, **setting)
    return replayed(key_R, UPDATES[-1], world=NOISY, **setting)


@cache
def setting_of(learner: str) -> tuple[dict[str, float], bool]:
    """Return the setting with the highest final score on pilot keys, and whether it is an end of the grid."""
    pilots = keys(tuple(range(PILOT, PILOT + 24)), NAME)
    return tuned(
        lambda **setting: float(noisy(pilots, learner, **setting)[-1].mean()),
        GRIDS[learner],
        endless={"epsilon": (1.0,)},
    )


def outcomes(score_KR: Floats, end: int = 0) -> dict[str, Any]:
    """Return the final score and the mean fall from the best so far, [R] each."""
    below_KR = np.maximum.accumulate(score_KR, axis=0) - score_KR
    return {"score": score_KR[-1], "fall": below_KR.mean(0), "at end": end}


def make(key_R: Keys) -> Rows:
    """Return the outcomes of PPO and of replayed Q-learning with a table and with features."""
    found = {("PPO", 8.0): outcomes(fresh(key_R))}
    for updates in UPDATES:
        found["table", updates] = outcomes(replayed(key_R, updates))
        drawn = [np.random.default_rng(i).normal(size=(*EXPERT_SA.shape, FEATURES)) for i in range(DRAWS)]
        lengths = [x / np.linalg.norm(x, axis=-1, keepdims=True) for x in drawn]
        several = [outcomes(replayed(key_R, updates, feature_SAF)) for feature_SAF in lengths]
        found["features", updates] = {
            name: np.mean([one[name] for one in several], axis=0) for name in several[0]
        }
    for learner in GRIDS:
        setting, end = setting_of(learner)
        found[f"{learner}, noisy", 8.0] = outcomes(noisy(key_R, learner, **setting), int(end))
    for (name, updates), columns_ in found.items():
        yield columns(tuple(range(len(key_R))), learner=name, updates=updates, **columns_)


EXPERIMENT = Experiment(
    question="Does PPO on fresh episodes hold its best where Q-learning from a replay buffer does not?",
    source="Sun (2023), RL in the era of LLMs, takeaway 5",
    differs="a rope of 8 contexts and 16 steps, 9,600 steps each; PPO is a table with returns, Q-learning a "
    "table or 32 random features of 64 pairs; no language model",
    compute=of_keys(NAME, make, SEEDS, {"points": POINTS, "features": FEATURES}),
    keys=("run", "seed", "learner", "updates"), metrics=("score", "fall", "at end"),
    margins={"mean fall from the best so far": MARGIN},
    figure=Plot(
        "final by setting", x="updates: updates per step", y="fall: mean fall from the best so far",
        arm=("learner",),
        names={"features": "Q, features", "table": "Q, table", "table, noisy": "Q, table, noisy"},
        says="Shows how far a learner is on average below its best score so far, against updates per step, "
        "on a rope of 8 contexts and 16 steps; PPO is a table and learns from fresh episodes; Q-learning "
        "replays all of its steps, with a table or with 32 random features of 64 pairs; with noisy rewards "
        "(standard deviation 3) both are tuned for their final score.",
    ),
    systems={"RL in the Era of LLMs (perspective)": Part("data and learner change at once")},
)  # fmt: skip

asks(EXPERIMENT,
    ("replayed-q-with-features-falls-where-ppo-holds", "At 8 updates a step, Q-learning with features from "
     "replay is on average further below its best so far than PPO with a table on fresh episodes, by 0.05 of "
     "what there is to gain.", {"learner": "features"}, {"learner": "PPO"},
     {"outcome": "fall", "over": {"updates": 8.0}}),
    ("ppo-with-a-table-ends-above-replayed-q-with-one-in-noise", "With a table each and rewards of standard "
     "deviation 3, PPO on fresh episodes at its best step size ends 0.05 of what there is to gain above "
     "Q-learning from replay at its best step and exploration, with 8 updates a step.",
     {"learner": "PPO, noisy"}, {"learner": "table, noisy"},
     {"outcome": "score", "over": {"updates": 8.0}}),
    ("replay-alone-does-not-make-q-learning-fall", "With a table, Q-learning from replay is at 1 and at 8 "
     "updates a step less than 0.05 below its best so far, on average: what falls is the approximation.",
     {"learner": "table", "updates": UPDATES}, None, {"outcome": "fall", "below": True}),
    by=MARGIN,
)  # fmt: skip
