"""OPPO on random worlds: hindsight contexts chosen by preferences, against a reward model."""

from functools import cache

import numpy as np

from analysis.lab import Floats, Grid, Groups, Ints, Seeds, TunedArms, ask, generator, strips
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, pick, random_worlds
from testbed.offline.improvement import softmax
from testbed.offline.tabular_offline import clone, fitted_q, greedy

NAME = "preferred-contexts"
SEEDS, PILOTS, FRESH, EPISODES, LENGTH, PAIRS = 96, 24, 680_000, 60, 20, 60
STATES, ACTIONS, CONTEXT, UPDATES = 8, 4, 4, 800
QUALITIES = (0.0, 0.3, 0.6)
"""Probabilities with which the loggers take the best action; otherwise a random one."""
MARGIN = 0.02
"""Margin of the score, 1 being the optimum's lead over the uniform policy. Set before the table was made."""
ARMS: dict[str, Grid] = {
    "cloned": {},
    "preferred episodes cloned": {},
    "context": {
        "rate": tuple(2.0**i for i in range(-11, -6)),
        "weight": tuple(2.0**i for i in range(2, 15)),
    },
    "reward model": {
        "ridge": tuple(2.0**i for i in range(-9, 11)),
        "pessimism": (0.0, *(2.0**i for i in range(-3, 8))),
    },
}
"""Adam's rate and the weight of the preferences; the ridge of the reward model, and the pessimism that the
plan takes off a pair with n visits, pessimism / sqrt(n)."""


@cache
def given(seeds: Seeds) -> tuple[Worlds, Floats, Floats, Floats, Ints]:
    """Return worlds with noiseless rewards; the visits of their episodes, plain and discounted [R, N, S, A];
    all successors [R, S, A, S]; and pairs of episodes, the preferred one first [R, P, 2].
    """
    worlds = random_worlds(seeds, states=STATES, actions=ACTIONS, noise_std=0.0)
    visit, faded, going = [], [], []
    pairs = []
    for index, seed in enumerate(seeds):
        rng, n = generator(seed, NAME), np.arange(EPISODES)
        quality_N11 = rng.choice(QUALITIES, size=EPISODES)[:, None, None]
        mu_NSA = quality_N11 * worlds.best_RSA[index] + (1 - quality_N11) / ACTIONS
        state_N, count_NSA = rng.integers(STATES, size=EPISODES), np.zeros((EPISODES, STATES, ACTIONS))
        faded_NSA, going_SAS = np.zeros_like(count_NSA), np.zeros((STATES, ACTIONS, STATES))
        for t in range(LENGTH):
            action_N = pick(mu_NSA[n, state_N], rng.random(EPISODES))
            next_N = pick(worlds.moves_RSAS[index][state_N, action_N], rng.random(EPISODES))
            count_NSA[n, state_N, action_N] += 1
            faded_NSA[n, state_N, action_N] += DISCOUNT**t
            np.add.at(going_SAS, (state_N, action_N, next_N), 1)
            state_N = next_N
        return_N = (faded_NSA * worlds.reward_RSA[index]).sum((1, 2))
        pair_P2 = rng.integers(EPISODES, size=(PAIRS, 2))
        first_P = rng.random(PAIRS) < 1 / (1 + np.exp(return_N[pair_P2[:, 1]] - return_N[pair_P2[:, 0]]))
        pairs.append(np.where(first_P[:, None], pair_P2, pair_P2[:, ::-1]))
        visit.append(count_NSA)
        faded.append(faded_NSA)
        going.append(going_SAS)
    return worlds, np.stack(visit), np.stack(faded), np.stack(going), np.stack(pairs)


def planned(faded_RNSA: Floats, going_RSAS: Floats, pair_RP2: Ints, ridge: float, pessimism: float) -> Floats:
    """Return the best policy over logged actions in the learned model, with rewards fitted to preferences.

    Rewards are fitted by Bradley-Terry with Newton's method; the model class contains the truth.
    """
    place_R1 = np.arange(len(pair_RP2))[:, None]
    flat_RNX = faded_RNSA.reshape(*faded_RNSA.shape[:2], -1)
    gap_RPX = flat_RNX[place_R1, pair_RP2[..., 0]] - flat_RNX[place_R1, pair_RP2[..., 1]]
    reward_RX = np.zeros(gap_RPX[:, 0].shape)
    for _ in range(12):
        wrong_RP = 1 / (1 + np.exp((gap_RPX @ reward_RX[..., None])[..., 0]))
        slope_RX = (wrong_RP[:, None] @ gap_RPX)[:, 0] - ridge * reward_RX
        bend_RXX = np.swapaxes(gap_RPX * (wrong_RP * (1 - wrong_RP))[..., None], 1, 2) @ gap_RPX
        bend_RXX += ridge * np.eye(gap_RPX.shape[-1])
        reward_RX = reward_RX + np.linalg.solve(bend_RXX, slope_RX[..., None])[..., 0]
    count_RSA = going_RSAS.sum(-1)
    seen_RSA, n_RSA = count_RSA > 0, np.maximum(count_RSA, 1.0)
    reward_RSA = reward_RX.reshape(count_RSA.shape) - pessimism / np.sqrt(n_RSA)
    return greedy(fitted_q(going_RSAS / n_RSA[..., None], reward_RSA, DISCOUNT, seen_RSA, unseen=-1e3))


def contexts(
    visit_RNSA: Floats, faded_RNSA: Floats, pair_RP2: Ints, rate: float, weight: float
) -> tuple[Floats, Floats, Floats]:
    """Return the logits' table [R, S, A], their slopes in the context [R, S, A, D], and the preferred context
    [R, D], by Adam.

    An encoder z = W phi of an episode's discounted visits and a policy given z fit the episode's actions.
    With weight `weight`, mean (|z* - z+|^2 - |z* - z-|^2 + 1)_+ moves the context z* towards the preferred
    episodes. Source: Kang et al. (2023), OPPO.
    """
    # One start for all, so that a world's result does not depend on those learned beside it.
    size, rng = len(visit_RNSA), generator(0, f"{NAME} start")
    phi_RNX = (1 - DISCOUNT) * faded_RNSA.reshape(size, EPISODES, -1)
    params = [
        np.zeros((size, STATES, ACTIONS)),
        0.1 * np.broadcast_to(rng.normal(size=(STATES, ACTIONS, CONTEXT)), (size, STATES, ACTIONS, CONTEXT)),
        np.broadcast_to(rng.normal(size=(CONTEXT, STATES * ACTIONS)), (size, CONTEXT, STATES * ACTIONS)),
        np.zeros((size, CONTEXT)),
    ]
    means, squares = [0.0 * x for x in params], [0.0 * x for x in params]
    for update in range(1, UPDATES + 1):
        slopes = _slopes(params, visit_RNSA, phi_RNX, pair_RP2, weight)
        for i, slope in enumerate(slopes):
            means[i] = 0.9 * means[i] + 0.1 * slope
            squares[i] = 0.99 * squares[i] + 0.01 * slope**2
            scale = np.sqrt(squares[i] / (1 - 0.99**update)) + 1e-8
            params[i] = params[i] - rate * means[i] / (1 - 0.9**update) / scale
    return params[0], params[1], params[3]


def _slopes(
    params: list[Floats], visit_RNSA: Floats, phi_RNX: Floats, pair_RP2: Ints, weight: float
) -> list[Floats]:
    """Return the gradient of the loss with respect to each parameter."""
    table_RSA, slope_RSAD, encoder_RDX, star_RD = params
    size = len(table_RSA)
    z_RND = phi_RNX @ np.swapaxes(encoder_RDX, 1, 2)
    flat_RXD = slope_RSAD.reshape(size, -1, CONTEXT)
    logit_RNSA = table_RSA[:, None] + (z_RND @ np.swapaxes(flat_RXD, 1, 2)).reshape(visit_RNSA.shape)
    off_RNSA = visit_RNSA.sum(-1, keepdims=True) * softmax(logit_RNSA) - visit_RNSA
    off_RNX = off_RNSA.reshape(size, EPISODES, -1) / EPISODES / LENGTH
    toward_RND = off_RNX @ flat_RXD
    place_R1 = np.arange(size)[:, None]
    good_RPD, bad_RPD = (z_RND[place_R1, pair_RP2[..., i]] - star_RD[:, None] for i in (0, 1))
    active_RP1 = ((good_RPD**2).sum(-1) - (bad_RPD**2).sum(-1) + 1 > 0)[..., None] * weight / PAIRS
    np.add.at(toward_RND, (place_R1, pair_RP2[..., 0]), 2 * active_RP1 * good_RPD)
    np.add.at(toward_RND, (place_R1, pair_RP2[..., 1]), -2 * active_RP1 * bad_RPD)
    return [
        off_RNX.sum(1).reshape(table_RSA.shape),
        (np.swapaxes(off_RNX, 1, 2) @ z_RND).reshape(slope_RSAD.shape),
        np.swapaxes(toward_RND, 1, 2) @ phi_RNX,
        (2 * active_RP1 * (bad_RPD - good_RPD)).sum(1),
    ]


def learn(
    seeds: Seeds, arm: str, rate: float = 0.0, weight: float = 0.0, ridge: float = 1.0, pessimism: float = 0.0
) -> Groups:
    """Return the score of the policy that an arm learns, [R]."""
    worlds, visit_RNSA, faded_RNSA, going_RSAS, pair_RP2 = given(tuple(seed + FRESH for seed in seeds))
    place_R1 = np.arange(len(seeds))[:, None]
    if arm == "reward model":
        pi_RSA = planned(faded_RNSA, going_RSAS, pair_RP2, ridge, pessimism)
    elif arm == "cloned":
        pi_RSA = clone(visit_RNSA.sum(1), 0.1)
    elif arm == "preferred episodes cloned":
        pi_RSA = clone(visit_RNSA[place_R1, pair_RP2[..., 0]].sum(1), 0.1)
    else:
        table_RSA, slope_RSAD, star_RD = contexts(visit_RNSA, faded_RNSA, pair_RP2, rate, weight)
        pi_RSA = softmax(table_RSA + np.einsum("rsad,rd->rsa", slope_RSAD, star_RD))
    return {"score": worlds.score(pi_RSA)}


EXPERIMENT = TunedArms(ARMS, learn, "score", PILOTS).experiment(
    NAME, SEEDS, ("score",), {"episodes": EPISODES, "pairs": PAIRS},
    question="From preferences of episodes, does a context of hindsight do better than a reward model?",
    source="Kang et al. (2023), OPPO: beyond reward, offline preference-guided policy optimization",
    differs="random tables, 60 episodes and preferences; linear encoder and policy; rewards are Markov and "
    "in the reward model's class; planning in tables is exact",
    margins={"score": MARGIN},
    figure=strips("score", "Shows the score (0 the uniform policy, 1 the optimum) from 60 episodes of random "
        "MDPs and 60 preferences between them; arms: a clone of all or of the preferred episodes; a policy "
        "given a code of its episode (context), at a code chosen by preferences; a plan with rewards fitted "
        "to the preferences."),
    systems={"OPPO": "rewards that a table can express"},
)  # fmt: skip
ask(EXPERIMENT, "contexts-beat-a-reward-model", "In tables, with Markov rewards that the reward model can "
    "express, a context that preferences steer has a score at most 0.02 below that of a plan by a reward "
    "model and a model of the world, learned from the same episodes and preferences, both tuned.", "context",
    "reward model", -MARGIN, "score", off={"arm": "cloned"})  # fmt: skip
