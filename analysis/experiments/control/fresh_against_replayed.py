"""One learner on fresh episodes and on all episodes so far: PPO, and Q-learning with a table or features."""

from dataclasses import replace

import numpy as np

from analysis.kernels.mechanisms import tightrope
from analysis.lab import Floats, Grid, Groups, Seeds, TunedArms, asks, keys, strips
from testbed.offline.improvement import clipped_passes, monte_carlo, softmax
from testbed.offline.tabular_offline import greedy

NAME = "fresh-against-replayed"
SEEDS, PILOTS, CONTEXTS, HORIZON, EPISODES, POINTS = 48, 12, 8, 16, 20, 30
FEATURES, UPDATES, PASSES, LAST = 32, 8.0, 8, 5
"""Random features of length 1 for 64 pairs; replayed steps per step; passes of PPO; rounds in a score."""
NOISE, MARGIN = 3.0, 0.05
"""Standard deviation of rewards: without noise all reach the optimum. Margin, a share of the optimum's lead
over random actions. Set before the table was made."""
STEPS = (0.002, 0.004, 0.008, 0.016, 0.03, 0.06, 0.125, 0.25, 0.5, 1.0)
Q: Grid = {"step_size": STEPS, "epsilon": (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)}
ARMS: dict[str, Grid] = {
    "PPO": {"step_size": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)},
    "Q, table": Q,
    "Q, features": Q,
}
ROPE, EXPERT_SA = tightrope(contexts=CONTEXTS, horizon=HORIZON)
WORLD = replace(ROPE, discount=0.9, noise="normal", noise_std=NOISE)


def learn(seeds: Seeds, arm: str, data: str, **setting: float) -> Groups:
    """Return the mean score in the last five of 30 rounds of 20 episodes, [R]: 0 random actions, 1 optimum.

    data: "fresh", the last 20 episodes alone, or "replayed", all so far.
    """
    low, best = (float(WORLD.value(x)) for x in (np.full_like(EXPERT_SA, 1 / WORLD.actions), EXPERT_SA))
    make = _ppo if arm == "PPO" else _q
    value_KR = make(seeds, data == "replayed", arm == "Q, features", **setting)
    return {"score": ((value_KR - low) / (best - low)).mean(0)}


def _ppo(seeds: Seeds, replayed: bool, _features: bool, step_size: float) -> Floats:
    """Return PPO's values after the last rounds, [K, R], with returns as advantages, less a state's mean."""
    key_R, values = keys(seeds, f"{NAME}/{replayed}"), []
    logits_RSA = np.zeros((len(seeds), *EXPERT_SA.shape))
    visit_RSA, sum_RSA = np.zeros((2, *logits_RSA.shape))
    for each in range(POINTS):
        seen_RSA, mean_RSA = monte_carlo(WORLD, softmax(logits_RSA), EPISODES, key_R, step=each)
        visit_RSA, sum_RSA = replayed * visit_RSA + seen_RSA, replayed * sum_RSA + seen_RSA * mean_RSA
        state_RS1 = sum_RSA.sum(-1, keepdims=True) / np.maximum(visit_RSA.sum(-1, keepdims=True), 1.0)
        adv_RSA = np.where(visit_RSA > 0, sum_RSA / np.maximum(visit_RSA, 1.0) - state_RS1, 0.0)
        logits_RSA = clipped_passes(
            logits_RSA, visit_RSA, adv_RSA, passes=PASSES, step_size=step_size, clip=0.2
        )
        values += [WORLD.value(softmax(logits_RSA))] if each >= POINTS - LAST else []
    return np.stack(values)


def _q(seeds: Seeds, replayed: bool, features: bool, step_size: float, epsilon: float) -> Floats:
    """Return the values of Q-learning's greedy actions after the last rounds, [K, R]."""
    from testbed.offline.replay_control import replay_q

    length, values = EPISODES * HORIZON, []
    for seed, key in zip(seeds, keys(seeds, f"{NAME}/{replayed}"), strict=True):
        drawn_SAF = np.random.default_rng(seed).normal(size=(*EXPERT_SA.shape, FEATURES))
        q_1KSA, _ = replay_q(
            WORLD, [key], steps=POINTS * length, every=length, capacity=None if replayed else length,
            feature_SAF=drawn_SAF / np.linalg.norm(drawn_SAF, axis=-1, keepdims=True) if features else None,
            updates=UPDATES, step_size=step_size, epsilon=epsilon,
        )  # fmt: skip
        # A diverged critic has no greedy action: it takes the first.
        values.append(WORLD.value(greedy(np.nan_to_num(q_1KSA[0, -LAST:], posinf=0.0, neginf=0.0))))
    return np.stack(values, 1)


START = {"step_size": 0.03, "epsilon": 0.4}
TUNED = TunedArms(
    ARMS, learn, "score", PILOTS, {"data": ("fresh", "replayed")}, endless={"epsilon": (1.0,)},
    starts={"PPO": {"step_size": 4.0}, "Q, table": START, "Q, features": START},
)  # fmt: skip
EXPERIMENT = TUNED.experiment(
    NAME, SEEDS, ("score",), {"points": POINTS, "features": FEATURES},
    question="Does a learner gain from fresh episodes alone, or from all of its episodes?",
    source="Sun (2023), RL in the era of LLMs, takeaway 5",
    differs="a rope of 8 contexts and 16 steps with rewards of standard deviation 3; PPO is a table with "
    "returns, Q-learning a table or 32 random features of 64 pairs; no language model",
    margins={"share of the lead over random actions": MARGIN},
    figure=strips("score: late score, share of the optimum's lead", "Shows the score late in 30 rounds of 20 "
        "episodes on a rope of 8 contexts and 16 steps with noisy rewards; fresh: each learner has the last "
        "20 episodes; replayed: it has all so far; PPO is a table with returns, Q-learning a table or 32 "
        "random features of 64 pairs; all at their best steps and exploration.", y="arm: learner",
        arm=("data",)),
    systems={"RL in the Era of LLMs (perspective)": "PPO and Q-learning, each on both kinds of data"},
)  # fmt: skip

FRESH, REPLAYED = {"data": "fresh"}, {"data": "replayed"}
asks(EXPERIMENT,
    ("ppo-ends-higher-on-fresh-episodes-than-on-all", "PPO with a table ends 0.05 of what there is to gain "
     "higher on fresh episodes alone than on all episodes so far, each at its best step.",
     FRESH, REPLAYED, {"over": {"arm": "PPO"}}),
    ("q-learning-ends-higher-on-fresh-episodes-than-on-all", "Q-learning with a table and with features ends "
     "0.05 of what there is to gain higher on fresh episodes alone than on all episodes so far, each at its "
     "best step and exploration.", FRESH, REPLAYED, {"over": {"arm": ("Q, table", "Q, features")}}),
    ("fresh-ppo-ends-above-replayed-q-learning", "PPO on fresh episodes ends 0.05 of what there is to gain "
     "above Q-learning with a table on all episodes so far.", {"arm": "PPO", "data": "fresh"},
     {"arm": "Q, table", "data": "replayed"}),
    by=MARGIN, outcome="score",
)  # fmt: skip
