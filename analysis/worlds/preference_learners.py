"""Learners from preference sets: (seed, settings [R]) -> a world and R policies on it, a grid at once.

Gradients are sums over all drawn pairs; only the data and PPO's rollouts are random.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from envs.arrays import Floats
from testbed.offline.preferences import (
    bradley_terry,
    draw_pairs,
    fit_reward,
    log_policy,
    pair_dist,
    pair_gradient,
    vote_labels,
)
from testbed.rng import generator

PROMPTS, SEEN, ANSWERS, WIDTH = 16, 8, 6, 6


@dataclass(frozen=True)
class SetWorld:
    """Rewards [S, A]; a reference; features of the policy [S, A, F], and all that a reward model may see."""

    reward_SA: Floats
    ref_SA: Floats
    feature_SAF: Floats
    full_SAF: Floats

    def policy(self, theta_RF: Floats) -> Floats:
        """Return log pi, [R, S, A]."""
        return log_policy(theta_RF, self.feature_SAF, self.ref_SA)

    def regret(self, log_pi_RSA: Floats, where_S: slice = slice(None)) -> Floats:
        """Return E [max r - E_pi r] over prompts, [R]."""
        lost_RS = self.reward_SA.max(-1) - (np.exp(log_pi_RSA) * self.reward_SA).sum(-1)
        return np.asarray(lost_RS[:, where_S].mean(-1))


def world(
    seed: int, *, spread_S: Floats | float = 1.0, nats: float | None = None, sees: int = WIDTH
) -> SetWorld:
    """Return rewards of 6 normal features plus a part that features do not show but the reference knows.

    spread_S: factor of each prompt's rewards. nats: -log of the reference's probability of the best answer;
    None leaves the reference as it is. sees: features of the policy.
    """
    rng = generator(seed, "preference set")
    full_SAF = rng.normal(size=(PROMPTS, ANSWERS, WIDTH))
    hidden_SA = 0.7 * rng.normal(size=(PROMPTS, ANSWERS))
    reward_SA = full_SAF @ rng.normal(size=WIDTH) / np.sqrt(WIDTH) * 1.5 + hidden_SA
    reward_SA = np.reshape(spread_S, (-1, 1)) * reward_SA
    ref_SA = special.softmax(1.5 * hidden_SA + 0.5 * (full_SAF @ rng.normal(size=WIDTH)), axis=-1)
    if nats is not None:
        best_SA = reward_SA == reward_SA.max(-1, keepdims=True)
        rest_SA = np.where(best_SA, 0.0, ref_SA)
        mass = np.exp(-nats)
        ref_SA = np.where(best_SA, mass, (1 - mass) * rest_SA / rest_SA.sum(-1, keepdims=True))
    return SetWorld(reward_SA, ref_SA, full_SAF[..., :sees], full_SAF)


def seen_pairs(first_RSA: Floats, second_RSA: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Return how often each pair of two policies' answers to the seen prompts is drawn, [R, S, A, A]."""
    context_S = (np.arange(PROMPTS) < SEEN) / SEEN
    return draw_pairs(pair_dist(context_S, first_RSA, second_RSA), count, rng)


STEPS = 150
Settings = Mapping[str, Floats]
"""Name of a setting: its values [R]."""
Slope = Callable[[int, list[Floats]], Floats]
"""From the step and the parameters [R, F] so far, the newest last, to the update before the rate."""
Learner = Callable[[int, Settings], tuple[SetWorld, Floats]]
"""From a seed and settings: the world and theta [R, F]."""
VOTES = (1, 2, 4, 8, 16, 32)
"""Votes per pair; ten pairs have each."""


def train(start_RF: Floats, slope: Slope, rate_R: Floats, steps: int = STEPS) -> list[Floats]:
    """Return the parameters [R, F] before every step and at the end."""
    thetas = [start_RF]
    for step in range(steps):
        thetas.append(thetas[-1] + rate_R[:, None] * slope(step, thetas))
    return thetas


def on_pairs(
    found: SetWorld,
    given: tuple[Floats, Floats],
    settings: Settings,
    kind: str = "dpo",
    start: Floats | None = None,
) -> Floats:
    """Return theta of DPO or IPO [R, F], starting at the reference; DPO's rate is over beta^2."""
    beta_R, cells = settings["beta"], len(settings["beta"])
    weight_RSAA, label_RSAA = (np.broadcast_to(x, (cells, *x.shape[1:])) for x in given)
    # DPO's loss reads beta theta alone: with the rate over beta^2 that product moves alike at every beta.
    scale_R = 1 / beta_R**2 if kind == "dpo" else np.ones(cells)

    def slope(_: int, thetas: list[Floats]) -> Floats:
        return -pair_gradient(thetas[-1], found.feature_SAF, weight_RSAA, label_RSAA, beta=beta_R, kind=kind)[
            1
        ]

    start_RF = np.zeros((cells, found.feature_SAF.shape[-1]))
    moved_RF = train(start_RF, slope, settings["rate"] * scale_R)[-1]
    return moved_RF if start is None else start + moved_RF


def likelihood(found: SetWorld, shown_SA: Floats) -> Slope:
    """Return the gradient of the mean log-likelihood of answers shown with these counts, [S, A]."""
    share_SA = shown_SA / shown_SA.sum()

    def slope(_: int, thetas: list[Floats]) -> Floats:
        pi_RSA = np.exp(found.policy(thetas[-1]))
        pull_RSA = share_SA - share_SA.sum(-1, keepdims=True) * pi_RSA
        return np.einsum("rxa,xak->rk", pull_RSA, found.feature_SAF)

    return slope


def sft(found: SetWorld, shown_SA: Floats, rate_R: Floats) -> Floats:
    """Return theta [R, F] of supervised fine-tuning on shown answers; the rate is its strength."""
    return train(np.zeros((len(rate_R), found.feature_SAF.shape[-1])), likelihood(found, shown_SA), rate_R)[
        -1
    ]


def against_checkpoints(
    found: SetWorld, win_SA: Floats, settings: Settings, rng: np.random.Generator
) -> Floats:
    """Return theta [R, F] of DPO on shown winners against samples of the checkpoint `lag` steps back.

    That checkpoint is also the reference; with lag 0 it is the policy itself, and the start is its reference;
    with lag -1 it is drawn at every step from all before.
    """
    beta_R, lag_R = settings["beta"], settings["lag"].astype(int)
    cells, share_SA, beta_R111 = len(beta_R), win_SA / win_SA.sum(), beta_R[:, None, None, None]

    def slope(step: int, thetas: list[Floats]) -> Floats:
        drawn = int(rng.integers(max(1, step)))
        back = [drawn if lag < 0 else max(0, step - lag) for lag in lag_R]
        past_RF = np.stack([thetas[at][row] for row, at in enumerate(back)])
        past_RSA, now_RSA = found.policy(past_RF), found.policy(thetas[-1])
        gain_RSA = now_RSA - np.where(lag_R[:, None, None] == 0, found.policy(thetas[0]), past_RSA)
        apart_RSAA = gain_RSA[..., :, None] - gain_RSA[..., None, :]
        weight_RSAA = share_SA[..., None] * np.exp(past_RSA)[..., None, :]
        pull_RSAA = beta_R111 * weight_RSAA * special.expit(-beta_R111 * apart_RSAA)
        by_answer_RSA = pull_RSAA.sum(-1) - pull_RSAA.sum(-2)
        return np.einsum("rxa,xak->rk", by_answer_RSA, found.feature_SAF)

    start_RF = np.zeros((cells, found.feature_SAF.shape[-1]))
    return train(start_RF, slope, settings["rate"] / beta_R)[-1]


def ppo(found: SetWorld, model_SA: Floats, settings: Settings, rng: np.random.Generator) -> Floats:
    """Return theta [R, F] of PPO on a reward model: 4 rollouts a prompt, 2 passes, clip .2, KL times beta."""
    used_S11 = (np.arange(PROMPTS) < SEEN)[:, None] / SEEN
    beta_R11 = settings["beta"][:, None, None]
    drawn: list[Floats] = []

    def slope(step: int, thetas: list[Floats]) -> Floats:
        now_RSA = found.policy(thetas[-1])
        if step % 2 == 0:
            drawn[:] = [rng.multinomial(4, np.exp(now_RSA)) / 4.0, now_RSA]
        count_RSA, old_RSA = drawn
        paid_RSA = model_SA - beta_R11 * (old_RSA - np.log(found.ref_SA))
        adv_RSA = paid_RSA - (count_RSA * paid_RSA).sum(-1, keepdims=True)
        ratio_RSA = np.exp(now_RSA - old_RSA)
        kept_RSA = np.where(adv_RSA > 0, ratio_RSA < 1.2, ratio_RSA > 0.8)
        pull_RSA = used_S11 * count_RSA * kept_RSA * ratio_RSA * adv_RSA
        pull_RSA = pull_RSA - pull_RSA.sum(-1, keepdims=True) * np.exp(now_RSA)
        return np.einsum("rxa,xak->rk", pull_RSA, found.feature_SAF)

    cells = len(settings["beta"])
    return train(np.zeros((cells, found.feature_SAF.shape[-1])), slope, settings["rate"])[-1]


def votes(kind: str, rule: str, spread: Sequence[float]) -> Learner:
    """Return DPO or IPO on pairs of the reference, labeled by 1 to 32 votes; spread: factors of rewards.

    rule: of `vote_labels`.
    """

    def learn(seed: int, settings: Settings) -> tuple[SetWorld, Floats]:
        found = world(seed, spread_S=np.tile(spread, PROMPTS // len(spread)))
        weight_RSAA, sum_RSAA = np.zeros((2, 1, PROMPTS, ANSWERS, ANSWERS))
        for count in VOTES:
            shown_RSAA = seen_pairs(
                found.ref_SA[None], found.ref_SA[None], 10, generator(seed, "pairs", count)
            )
            chance_SAA = bradley_terry(found.reward_SA)
            label_RSAA = vote_labels(shown_RSAA, chance_SAA, count, rule, generator(seed, "votes", count))
            weight_RSAA, sum_RSAA = weight_RSAA + shown_RSAA, sum_RSAA + shown_RSAA * label_RSAA
        label_RSAA = np.where(weight_RSAA > 0, sum_RSAA / np.maximum(weight_RSAA, 1), 0.5)
        return found, on_pairs(found, (weight_RSAA, label_RSAA), settings, kind)

    return learn


def experts(arm: str, nats: float) -> Learner:
    """Return a learner from 80 pairs of the best answer and the reference's, which gives it exp(-nats).

    The best answer wins each of its pairs, as SFT takes it for the winner too. DPO on the pairs; "cloned":
    SFT on the winners; "aligned": the same, then DPO with that as reference, as in OPA-DPO.
    """

    def learn(seed: int, settings: Settings) -> tuple[SetWorld, Floats]:
        found = world(seed, nats=nats)
        best_SA = (found.reward_SA == found.reward_SA.max(-1, keepdims=True)).astype(np.float64)
        weight_RSAA = seen_pairs(best_SA[None], found.ref_SA[None], 80, generator(seed, "pairs"))
        start_RF = None if arm == "DPO" else sft(found, weight_RSAA[0].sum(-1), settings["sft"])
        if arm == "cloned" and start_RF is not None:
            return found, start_RF
        return found, on_pairs(found, (weight_RSAA, np.ones_like(weight_RSAA)), settings, start=start_RF)

    return learn


def _judged(weight_RSAA: Floats, chance_SAA: Floats, seed: int, name: str) -> tuple[Floats, Floats]:
    return weight_RSAA, vote_labels(weight_RSAA, chance_SAA, 1, "hard", generator(seed, name))


def demonstrations(arm: str) -> Learner:
    """Return a learner from 4 good answers to each prompt seen, against the losers of its arm."""

    def learn(seed: int, settings: Settings) -> tuple[SetWorld, Floats]:
        found, rng = world(seed), generator(seed, "demonstrations")
        seen_S1 = (np.arange(PROMPTS) < SEEN)[:, None]
        good_SA = found.ref_SA * np.exp(2 * found.reward_SA)
        drawn_SA = rng.multinomial(4, good_SA / good_SA.sum(-1, keepdims=True))
        win_SA = np.where(seen_S1, drawn_SA, 0.0)
        lose_SA = 4.0 * found.ref_SA
        if arm == "4 logged losers":
            lose_SA = rng.multinomial(4, found.ref_SA).astype(np.float64)
        if arm in ("4 logged losers", "reference's losers"):
            weight_RSAA = (win_SA[:, :, None] * lose_SA[:, None, :])[None]
            # An answer cannot beat itself.
            label_RSAA = np.where(np.eye(ANSWERS, dtype=bool), 0.5, np.ones_like(weight_RSAA))
            return found, on_pairs(found, (weight_RSAA, label_RSAA), settings)
        settings = {"lag": np.zeros(len(settings["beta"])), **settings}
        return found, against_checkpoints(found, win_SA, settings, rng)

    return learn


def gap(arm: str) -> Learner:
    """Return a learner from 100 pairs of the first 3 answers, whose policy has 4 of the 6 features.

    PPO has a reward model of all features and rolls out on the prompts of the pairs.
    """

    def learn(seed: int, settings: Settings) -> tuple[SetWorld, Floats]:
        found = world(seed, sees=4)
        shown_RSA = np.broadcast_to((np.arange(ANSWERS) < 3) / 3, (1, PROMPTS, ANSWERS))
        weight_RSAA = seen_pairs(shown_RSA, shown_RSA, 100, generator(seed, "pairs"))
        given = _judged(weight_RSAA, bradley_terry(found.reward_SA), seed, "labels")
        if arm == "DPO":
            return found, on_pairs(found, given, settings)
        model_SA = fit_reward(*given, found.full_SAF, 1.0)[0]
        return found, ppo(found, model_SA, settings, generator(seed, "rollouts"))

    return learn
