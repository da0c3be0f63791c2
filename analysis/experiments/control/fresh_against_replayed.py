"""PPO on fresh episodes against Q-learning from a replay buffer, at equal steps: which one holds its best?"""

from dataclasses import replace

import numpy as np

from analysis.kernels.mechanisms import tightrope
from analysis.lab import Experiment, Floats, Keys, Part, Plot, Rows, asks, columns, of_keys
from testbed.offline.improvement import outer_loop
from testbed.offline.tabular_offline import greedy

NAME = "fresh-against-replayed"
SEEDS, CONTEXTS, HORIZON, EPISODES, POINTS = 24, 8, 16, 20, 30
FEATURES, DRAWS, UPDATES = 32, 4, (1.0, 8.0)
"""Random ones of length 1 for 64 pairs, in four draws; and drawn steps per step."""
MARGIN = 0.05
"""Share of what there is to gain. Set before the table was made."""


def fallen(score_KR: Floats) -> tuple[Floats, Floats]:
    """The last score, and the mean distance of the scores below the best so far, [R] each."""
    below_KR = np.maximum.accumulate(score_KR, axis=0) - score_KR
    return score_KR[-1], below_KR.mean(0)


def make(key_R: Keys) -> Rows:
    """Return last score and fall of PPO and of replayed Q-learning with a table and with features."""
    from testbed.offline.replay_control import replay_q

    rope, expert_SA = tightrope(contexts=CONTEXTS, horizon=HORIZON)
    world = replace(rope, discount=0.9)
    chance_SA = np.full_like(expert_SA, 1 / world.actions)
    best, low = (float(world.value(pi_SA)) for pi_SA in (expert_SA, chance_SA))

    def scores(value_KR: Floats) -> Floats:
        return np.asarray((value_KR - low) / (best - low))

    def replayed(updates: float, feature_SAF: Floats | None) -> tuple[Floats, Floats]:
        q_RKSA, _ = replay_q(
            world, key_R, steps=POINTS * EPISODES * HORIZON, every=EPISODES * HORIZON, updates=updates,
            epsilon=0.2, feature_SAF=feature_SAF,
        )  # fmt: skip
        # A critic that has diverged has no greedy action: it takes the first.
        known_KRSA = np.moveaxis(np.nan_to_num(q_RKSA, posinf=0.0, neginf=0.0), 1, 0)
        return fallen(scores(np.stack([world.value(greedy(q_RSA)) for q_RSA in known_KRSA])))

    given = outer_loop(world, key_R, episodes=EPISODES, iterations=POINTS, step_size=20.0, passes=8)
    found = {("PPO", 8.0): fallen(scores(given))}
    for updates in UPDATES:
        found["table", updates] = replayed(updates, None)
        drawn = [np.random.default_rng(i).normal(size=(*expert_SA.shape, FEATURES)) for i in range(DRAWS)]
        several = [replayed(updates, x / np.linalg.norm(x, axis=-1, keepdims=True)) for x in drawn]
        last_R, fall_R = (np.mean(column, axis=0) for column in zip(*several, strict=True))
        found["features", updates] = last_R, fall_R
    for (name, updates), (last_R, fall_R) in found.items():
        said = {"learner": name, "updates": updates, "score": last_R, "fall": fall_R}
        yield columns(tuple(range(len(key_R))), **said)


EXPERIMENT = Experiment(
    question="Does PPO on fresh episodes hold its best where Q-learning from a replay buffer does not?",
    source="Sun (2023), RL in the era of LLMs, takeaway 5",
    differs="a rope of 8 contexts and 16 steps, 9,600 steps each; PPO is a table with returns, Q-learning a "
    "table or 32 random features of 64 pairs; no language model",
    compute=of_keys(NAME, make, SEEDS, {"points": POINTS, "features": FEATURES}),
    keys=("run", "seed", "learner", "updates"), metrics=("score", "fall"),
    margins={"mean fall from the best so far": MARGIN},
    figure=Plot(
        "final by setting", x="updates: updates per step", y="fall: mean fall from the best so far",
        arm=("learner",), names={"features": "Q, features", "table": "Q, table"},
        says="Shows how far a learner is on average below its best score so far, against updates per step, "
        "on a rope of 8 contexts and 16 steps: PPO is a table and learns from fresh episodes; Q-learning "
        "replays all of its steps, with a table or with 32 random features of 64 pairs.",
    ),
    systems={"RL in the Era of LLMs (perspective)": Part()},
)  # fmt: skip

asks(EXPERIMENT,
    ("replayed-q-with-features-falls-where-ppo-holds", "At 8 updates a step, Q-learning with features from "
     "replay is on average further below its best so far than PPO with a table on fresh episodes, by 0.05 of "
     "what there is to gain.", {"learner": "features"}, {"learner": "PPO"},
     {"outcome": "fall", "over": {"updates": 8.0}}),
    ("ppo-with-a-table-ends-above-replayed-q-with-one", "With a table each, PPO on fresh episodes ends 0.05 "
     "of what there is to gain above Q-learning from replay, at 8 updates a step.", {"learner": "PPO"},
     {"learner": "table"}, {"outcome": "score", "over": {"updates": 8.0}}),
    ("replay-alone-does-not-make-q-learning-fall", "With a table, Q-learning from replay is at 1 and at 8 "
     "updates a step less than 0.05 below its best so far, on average: what falls is the approximation.",
     {"learner": "table", "updates": UPDATES}, None, {"outcome": "fall", "below": True}),
    by=MARGIN,
)  # fmt: skip
