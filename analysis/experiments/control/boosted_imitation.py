"""AILBoost: replay weighted as the deployed ensemble is, against DAC, which deploys its newest policy."""

from functools import cache

import numpy as np

from analysis.kernels.imitation import discriminator_reward, replay_weights
from analysis.lab import Floats, Grid, Groups, Plot, Seeds, TunedArms, ask, generator
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, random_worlds
from testbed.offline.improvement import softmax
from testbed.offline.tabular_offline import ahead, clone

NAME = "boosted-imitation"
SEEDS, PILOTS, STATES, ROUNDS, LAST, LENGTH, DRAWS, SWEEPS = 96, 32, 30, 20, 5, 12, 200, 25
TRAJECTORIES = (1, 4)
LEARNERS: Grid = {
    "temperature": (1e-5, 1e-4, 0.001, 0.003, 0.01, 0.03, 0.1),
    "step": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
    "floor": (1e-13, 1e-11, 1e-9, 1e-7, 1e-5),
}
GRIDS: dict[str, Grid] = {
    "boosted": {**LEARNERS, "boost": (0.1, 0.2, 0.4, 0.6, 0.8)},
    "uniform ensemble": {**LEARNERS, "boost": (0.0,)},
    "DAC": {**LEARNERS, "boost": (0.0,)},
    "cloning": {},
}  # fmt: skip
"""AILBoost; AILBoost with equal weights; DAC, the newest policy of a uniform replay; cloning."""
MARGIN = 0.02
"""Margin of the score, 0 the uniform policy's value and 1 the expert's. Set before the table was made."""


@cache
def demonstrated(seeds: Seeds, trajectories: int) -> tuple[Worlds, Floats, Floats, Floats]:
    """Return one random MDP of 30 states per seed, the visits of its optimal policy in a few trajectories
    [R, S, A], and the values of the uniform and of the optimal policy, [R] each.
    """
    worlds = random_worlds(seeds, states=STATES)
    best_RSA = worlds.best_RSA
    visit_RSA = np.zeros(worlds.reward_RSA.shape)
    for r, (seed, world) in enumerate(zip(seeds, worlds.worlds, strict=True)):
        rng, action_S = generator(seed, f"{NAME} expert"), best_RSA[r].argmax(-1)
        for _ in range(trajectories):
            s = int(rng.choice(STATES, p=world.start_S))
            for _ in range(LENGTH):
                a = int(action_S[s])
                visit_RSA[r][s, a] += 1
                s = int(rng.choice(STATES, p=world.transition_SAS[s][a]))
    low_R = worlds.value(clone(np.zeros_like(visit_RSA)))
    return worlds, visit_RSA, low_R, worlds.value(best_RSA)


def imitated(
    seeds: Seeds, trajectories: int, arm: str, temperature: float, step: float, floor: float, boost: float
) -> Floats:
    """Return the score of the deployed policy, mean over the last 5 of 20 rounds, [R].

    In each round the newest policy adds 200 draws of its occupancy to the replay. The reward is the
    discriminator's logit between the expert's shares and those of the weighted replay, both with a floor. The
    next policy moves by `step` in logits toward its soft optimum, found by 25 sweeps from the last round's
    soft values.
    """
    worlds, visit_RSA, low_R, high_R = demonstrated(seeds, trajectories)
    expert_RSA = visit_RSA / visit_RSA.sum((1, 2), keepdims=True)
    rngs = [generator(seed, f"{NAME} replay") for seed in seeds]
    logit_RSA, value_RS = np.zeros_like(expert_RSA), np.zeros(expert_RSA.shape[:2])
    shares: list[Floats] = []
    scores: list[Floats] = []
    deployed: list[Floats] = []
    for t in range(ROUNDS):
        pi_RSA = softmax(logit_RSA)
        law_RSA = worlds.state_law(pi_RSA)[..., None] * pi_RSA
        drawn = [rng.multinomial(DRAWS, d.ravel() / d.sum()) for rng, d in zip(rngs, law_RSA, strict=True)]
        shares.append(np.array(drawn).reshape(law_RSA.shape) / DRAWS)
        scores.append((worlds.value(pi_RSA) - low_R) / (high_R - low_R))
        weight_K = replay_weights(t + 1, boost)
        ensemble = arm in ("boosted", "uniform ensemble")
        deployed.append(np.einsum("k,kr->r", weight_K, scores) if ensemble else scores[-1])
        replay_RSA = np.einsum("k,krsa->rsa", weight_K, shares)
        reward_RSA = discriminator_reward(expert_RSA, replay_RSA, floor)
        for _ in range(SWEEPS):
            q_RSA = (reward_RSA + DISCOUNT * ahead(worlds.moves_RSAS, value_RS)) / temperature
            top_RS = q_RSA.max(-1)
            value_RS = temperature * (top_RS + np.log(np.exp(q_RSA - top_RS[..., None]).sum(-1)))
        logit_RSA = (1 - step) * logit_RSA + step * (q_RSA - top_RS[..., None])
    return np.asarray(np.mean(deployed[-LAST:], axis=0))


def learn(seeds: Seeds, arm: str, trajectories: int, **knobs: float) -> Groups:
    """Return the score of `imitated`, or of cloning, which is uniform in unseen states, [R]."""
    if arm != "cloning":
        return {"score": imitated(seeds, trajectories, arm, **knobs)}
    worlds, visit_RSA, low_R, high_R = demonstrated(seeds, trajectories)
    return {"score": (worlds.value(clone(visit_RSA)) - low_R) / (high_R - low_R)}


EXPERIMENT = TunedArms(GRIDS, learn, "score", PILOTS, {"trajectories": TRAJECTORIES}, fine=True).experiment(
    NAME, SEEDS, ("score",), {"rounds": ROUNDS, "draws": DRAWS},
    question="Does an ensemble with a replay of its own weights imitate better than DAC's newest policy?",
    source="Chang et al. (2024), AILBoost",
    differs="random MDPs of 30 states whose transitions the learner knows; discriminators are tables fitted "
    "to drawn replay; soft optima in place of SAC",
    margins={"score that counts as more": MARGIN},
    figure=Plot(
        "final by setting", x="trajectories: expert trajectories", y="score: score (1 expert)", arm=("arm",),
        says="Shows the value (0 the uniform policy's, 1 the expert's) against the expert's trajectories, "
        "in random MDPs of 30 states; boosted deploys an ensemble and replays its members, newer ones with "
        "more weight; uniform ensemble weights all alike; DAC deploys the newest policy of a uniform "
        "replay; cloning copies the expert.",
    ),
    systems=("AILBoost",),
)  # fmt: skip

ask(EXPERIMENT, "a-boosted-ensemble-imitates-better-than-dac", "From 1 and from 4 expert trajectories the "
    "boosted ensemble scores 0.02 more than the newest policy of DAC, each at its best setting of pilot "
    "worlds.", "boosted", "DAC", MARGIN, "score", over={"trajectories": TRAJECTORIES})  # fmt: skip
