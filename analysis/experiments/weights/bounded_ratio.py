"""Bounded ratio RL: BPO's loss against PPO's on drawn batches."""

from collections.abc import Callable
from typing import Any

import numpy as np

from analysis.lab import Floats, Grid, Groups, Ints, Plot, Seeds, TunedArms, asks, generator
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, random_worlds
from testbed.offline.improvement import softmax

NAME = "bounded-ratio"
SEEDS, PILOTS, FRESH, ITERATIONS, LAST, EPISODES, HORIZON, EPOCHS = 192, 24, 680_000, 30, 5, 16, 20, 10
RATES, LAMS = (tuple(2.0**i for i in range(*ends)) for ends in ((0, 8), (-6, 6)))
PPO: Grid = {"rate": RATES, "eps": (0.1, 0.2, 0.4, 0.6, 0.9, 1.5, 3.0)}
BPO: Grid = {"rate": RATES, "eps": (0.1, 0.2, 0.4, 0.6, 0.9, 1.0), "lam": LAMS}
GRIDS: dict[str, Grid] = {"ppo": PPO, "bpo": BPO}
"""PPO; BPO, whose gradient turns back beyond its target. Its band ends at 1, as no ratio is below 0."""
NOISE, MARGIN = 1.0, 0.02
"""Deviation of rewards; margin of the score, 0 the uniform policy's value and 1 the best. Pre-set."""


def played(worlds: Worlds, pi_RSA: Floats, rngs: list[np.random.Generator]) -> tuple[Ints, Ints, Floats]:
    """Return states, actions and discounted returns to go of 16 episodes of 20 steps, [R, N] each."""
    cells = np.arange(len(rngs))[:, None]
    moves_RSAS, act_RSA = worlds.moves_RSAS.cumsum(-1), pi_RSA.cumsum(-1)
    start_RS = np.stack([each.start_S for each in worlds.worlds]).cumsum(-1)
    drawn_RTB2 = np.stack([rng.random((HORIZON + 1, EPISODES, 2)) for rng in rngs])
    noise_RTB = np.stack([rng.normal(size=(HORIZON, EPISODES)) for rng in rngs])

    def pick(law_RBK: Floats, uniform_RB: Floats) -> Ints:
        return np.minimum((law_RBK <= uniform_RB[..., None]).sum(-1), law_RBK.shape[-1] - 1)

    state_RB = pick(np.repeat(start_RS[:, None], EPISODES, 1), drawn_RTB2[:, HORIZON, :, 0])
    states, actions, rewards = [], [], []
    for t in range(HORIZON):
        action_RB = pick(act_RSA[cells, state_RB], drawn_RTB2[:, t, :, 0])
        states.append(state_RB)
        actions.append(action_RB)
        rewards.append(worlds.reward_RSA[cells, state_RB, action_RB] + NOISE * noise_RTB[:, t])
        state_RB = pick(moves_RSAS[cells, state_RB, action_RB], drawn_RTB2[:, t, :, 1])
    for t in reversed(range(HORIZON - 1)):
        rewards[t] = rewards[t] + DISCOUNT * rewards[t + 1]
    return tuple(np.concatenate(x, axis=-1) for x in (states, actions, rewards))  # type: ignore[return-value]


def learn(seeds: Seeds, arm: str, rate: float, eps: float, lam: float = 1.0) -> Groups:
    """Return the score, mean over the last 5 of 30 batches with 10 epochs each, [R].

    Advantages are returns to go minus the state's mean in the batch. BPO's target for a ratio is a sigmoid of
    returns minus the state's median, and its loss weighs the distance from there by the advantage's size.
    """
    seeds = tuple(seed + FRESH for seed in seeds)
    worlds, rngs = random_worlds(seeds, states=6), [generator(seed, f"{NAME} play") for seed in seeds]
    best_R = worlds.value(worlds.best_RSA)
    logit_RSA = np.zeros_like(worlds.reward_RSA)
    low_R, cells, values = worlds.value(softmax(logit_RSA)), np.arange(len(seeds))[:, None], []
    for _ in range(ITERATIONS):
        old_RSA = softmax(logit_RSA)
        values.append((worlds.value(old_RSA) - low_R) / (best_R - low_R))
        s_RN, a_RN, return_RN = played(worlds, old_RSA, rngs)
        adv_RN = return_RN - middle(s_RN, return_RN, np.mean)
        if arm == "bpo":
            gap_RN = return_RN - middle(s_RN, return_RN, np.median)
            aim_RN = 1 - eps + 2 * eps / (1 + np.exp(-np.clip(gap_RN / lam, -50, 50)))
        for _ in range(EPOCHS):
            pi_RSA = softmax(logit_RSA)
            u_RN = (pi_RSA / old_RSA)[cells, s_RN, a_RN]
            if arm == "ppo":
                pull_RN = np.where(np.where(adv_RN > 0, u_RN < 1 + eps, u_RN > 1 - eps), u_RN * adv_RN, 0.0)
            else:
                pull_RN = np.sign(aim_RN - u_RN) * u_RN * np.abs(adv_RN)
            pull_RSA = np.zeros_like(logit_RSA)
            np.add.at(pull_RSA, (cells, s_RN, a_RN), pull_RN / pull_RN.shape[-1])
            logit_RSA = logit_RSA + rate * (pull_RSA - pi_RSA * pull_RSA.sum(-1, keepdims=True))
    return {"score": np.mean(values[-LAST:], axis=0)}


def middle(state_RN: Ints, value_RN: Floats, of: Callable[[Floats], Any]) -> Floats:
    """Return the mean or median, `of`, of the values in the same state of the same cell, [R, N]."""
    found_RN = np.zeros_like(value_RN)
    for state_N, value_N, found_N in zip(state_RN, value_RN, found_RN, strict=True):
        for s in np.unique(state_N):
            here_N = state_N == s
            found_N[here_N] = of(value_N[here_N])
    return found_RN


EXPERIMENT = TunedArms(GRIDS, learn, "score", PILOTS, endless={"eps": (1.0,)}).experiment(
    NAME, SEEDS, ("score",), {"iterations": ITERATIONS, "episodes": EPISODES},
    question="Is the best step in a band of ratios monotone, and does BPO's loss learn as well as PPO's?",
    source="Bounded ratio RL (2026), BPO, arXiv:2604.18578",
    differs="random MDPs of 6 states with noisy rewards; a softmax table; 30 fresh batches of 16 episodes, "
    "10 epochs of plain gradient; critics are batch means and medians",
    margins={"score": MARGIN},
    figure=Plot(
        "distribution", x="arm: loss", y="score: score (1 optimal)",
        says="Shows the late score (0 the uniform policy, 1 the optimum) of learning from small fresh "
        "batches in random MDPs; PPO clips ratios; BPO moves each ratio toward a target within a band, and "
        "back where it is beyond.",
    ),
    systems={"BPO / GBPO (Bounded Ratio RL)": "the step, and on-policy BPO in tables, with ten "
             "times PPO's settings: no worse, no gain of .02"},
)  # fmt: skip


asks(EXPERIMENT,
    ("bpo-is-no-worse-than-ppo", "On policy BPO ends less than 0.02 below PPO, each at its best setting of "
     "pilot worlds.", "bpo", "ppo", -MARGIN),
    ("bpo-ends-above-ppo", "On policy BPO ends 0.02 above PPO, each at its best setting of pilot worlds.",
     "bpo", "ppo", MARGIN),
    outcome="score",
)  # fmt: skip
