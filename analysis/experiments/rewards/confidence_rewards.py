"""Reward models that like confident answers: PPO, a calibrated model (PPO-M), a moving average (PPO-C)."""

import itertools
from functools import cache

import numpy as np
from scipy import optimize, special

from analysis.kernels.imperfect_rewards import calibration_error
from analysis.lab import Experiment, Floats, Grid, Plot, Rows, Seeds, asks, columns, generator, of_seeds
from analysis.worlds.pilots import PILOT, tuned
from testbed.offline.preferences import tilt

NAME = "confidence-rewards"
SEEDS, PILOTS, PROMPTS, ANSWERS, BETA, PAIRS = 48, 24, 24, 4, 0.3, 2000
SAID = (0.05, 0.25, 0.5, 0.75, 0.95)
BIASES = (0.0, 2.0)
"""How strongly the comparisons prefer confident wording; 0 switches that off."""
WEIGHTS: Grid = {"weight": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)}
"""PPO-C's coefficients that are tried on pilot worlds."""
ERROR, SAME = 0.05, 0.02
"""Margins: calibration error that counts as lower, accuracy that counts as equal. Set before the table."""


def features(quality_x: Floats, said_x: Floats) -> Floats:
    """Return the inputs of a reward model: quality, stated confidence, and their product, [..., 3]."""
    return np.stack(np.broadcast_arrays(quality_x, said_x - 0.5, quality_x * (said_x - 0.5)), -1)


def reward_model(seed: int, quality_SA: Floats, bias: float, calibrated: bool) -> Floats:
    """Return the weights of a Bradley-Terry model of 2000 comparisons of answers with stated confidence.

    calibrated: PPO-M adds comparisons of an answer with itself: a better answer is preferred at high
    confidence, a worse one at low confidence.
    """
    rng = generator(seed, f"{NAME} pairs {bias:g}")
    prompt_N, (first_N, second_N) = rng.integers(PROMPTS, size=PAIRS), rng.integers(ANSWERS, size=(2, PAIRS))
    one_N, two_N = quality_SA[prompt_N, first_N], quality_SA[prompt_N, second_N]
    said_2N = rng.choice(SAID, size=(2, PAIRS))
    gap_N = one_N - two_N + bias * (said_2N[0] - said_2N[1])
    sign_N = np.where(rng.random(PAIRS) < special.expit(gap_N), 1.0, -1.0)
    gap_N3 = sign_N[:, None] * (features(one_N, said_2N[0]) - features(two_N, said_2N[1]))
    if calibrated:
        low, high = np.array(SAID[0]), np.array(SAID[-1])
        won_N, lost_N = np.where(sign_N > 0, one_N, two_N), np.where(sign_N > 0, two_N, one_N)
        more = ((won_N, high, low), (lost_N, low, high))
        gap_N3 = np.concatenate([gap_N3, *(features(x, y) - features(x, z) for x, y, z in more)])

    def loss(weight_3: Floats) -> tuple[float, Floats]:
        margin_N = gap_N3 @ weight_3
        slope_3 = -(special.expit(-margin_N)[:, None] * gap_N3).mean(0) + 1e-3 * weight_3
        return float(-special.log_expit(margin_N).mean() + 5e-4 * (weight_3**2).sum()), slope_3

    return np.asarray(optimize.minimize(loss, np.zeros(3), jac=True, method="BFGS").x)


def ends(ref_SX: Floats, plain_SA: Floats, weight: float) -> Floats:
    """Return the limit of KL-penalized RL on PPO-C's reward, [S, X], X = (answer, confidence).

    It is r + weight (r - level) (c - 1/2): r rewards the answer without its stated confidence c, and level,
    its moving average, is the policy's mean of r at the limit. Source: Leng et al. (2024), equation 5, and
    SeanLeng1/Reward-Calibration, calibrated_experience_maker.py.
    """
    plain_SA1 = plain_SA[..., None]

    def policy(level: float) -> Floats:
        shaped_SAK = plain_SA1 + weight * (plain_SA1 - level) * (np.array(SAID) - 0.5)
        return tilt(ref_SX, shaped_SAK.reshape(ref_SX.shape), BETA)

    def excess(level: float) -> float:
        pi_SA = policy(level).reshape(*plain_SA.shape, -1).sum(-1)
        return float((pi_SA * plain_SA).sum() / len(ref_SX)) - level

    # A mean of rewards lies within their range, so the excess changes its sign between its ends.
    return policy(float(optimize.brentq(excess, plain_SA.min() - 1e-6, plain_SA.max() + 1e-6)))


def learned(seed: int, bias: float, learner: str, weight: float = 0.0) -> dict[str, float]:
    """Return calibration error, accuracy and mean confidence at the limit of KL-penalized RL in one world."""
    rng, said_K = generator(seed, NAME), np.array(SAID)
    # The best answer to a prompt is right with probability at most 0.9, so no answer is certain.
    right_SA = rng.uniform(0.1, 0.9, (PROMPTS, 1)) * rng.random((PROMPTS, ANSWERS))
    quality_SA = special.logit(np.clip(right_SA, 0.02, 0.98)) + 0.5 * rng.normal(size=right_SA.shape)
    weight_3 = reward_model(seed, quality_SA, bias, learner == "PPO-M")
    ref_SX = np.full((PROMPTS, ANSWERS * len(SAID)), 1 / (ANSWERS * len(SAID)))
    if learner == "PPO-C":
        pi_SX = ends(ref_SX, features(quality_SA, np.array(0.5)) @ weight_3, weight)
    else:
        pi_SX = tilt(ref_SX, (features(quality_SA[..., None], said_K) @ weight_3).reshape(ref_SX.shape), BETA)
    pi_SAK = pi_SX.reshape(PROMPTS, ANSWERS, len(SAID))
    return {
        "error": calibration_error(pi_SAK, right_SA, said_K),
        "accuracy": float((pi_SAK.sum(-1) * right_SA).sum() / PROMPTS),
        "confidence": float((pi_SAK * said_K).sum() / PROMPTS),
    }


@cache
def chosen_weight() -> float:
    """Return PPO-C's coefficient with the least calibration error where comparisons prefer confident wording,
    of those that cost less than 0.02 of accuracy, on pilot worlds.
    """
    seeds, bias = range(PILOT, PILOT + PILOTS), BIASES[1]
    plain = np.mean([learned(seed, bias, "PPO")["accuracy"] for seed in seeds])

    def score(weight: float) -> float:
        found = [learned(seed, bias, "PPO-C", weight) for seed in seeds]
        right, error = (float(np.mean([x[name] for x in found])) for name in ("accuracy", "error"))
        return -error if right > plain - SAME else -np.inf

    return tuned(score, WEIGHTS)[0]["weight"]


def rows(seeds: Seeds) -> Rows:
    """Return what each learner ends at, by seed and bias of the comparisons."""
    for seed, bias, learner in itertools.product(seeds, BIASES, ("PPO", "PPO-M", "PPO-C")):
        found = learned(seed, bias, learner, chosen_weight())
        yield columns((seed,), bias=bias, learner=learner, **found)


EXPERIMENT = Experiment(
    question="Do PPO-M and PPO-C lower the calibration error that a biased reward model makes, at equal "
    "accuracy?",
    source="Leng et al. (2024), Taming overconfidence in LLMs, arXiv:2410.09724",
    differs="an answer and one of five confidences; linear reward models; the limit of training",
    compute=of_seeds(NAME, rows, SEEDS, {"prompts": PROMPTS, "beta": BETA, "pairs": PAIRS, "pilots": PILOTS}),
    keys=("run", "seed", "bias", "learner"), metrics=("error", "accuracy", "confidence"),
    budget="the limit of training, solved exactly",
    margins={"calibration error": ERROR, "accuracy": SAME},
    figure=Plot(
        "distribution", x="learner", y="error: calibration error", arm=("bias",),
        says="Shows the gap between stated confidence and truth at the limit of RL with a KL penalty, on "
        "answers that state one of five confidences; PPO has a plain reward model; PPO-M one that is also "
        "trained to like high confidence in better and low in worse answers; PPO-C rewards an answer without "
        "its confidence, and adds to confident ones the excess of this reward over a moving average; bias is "
        "how much the comparisons prefer confident wording, 0 not at all.",
    ),
    systems=("PPO-M / PPO-C",),
)  # fmt: skip

asks(EXPERIMENT,
    ("ppo-m-is-better-calibrated", "Where comparisons prefer confident wording PPO-M's calibration error is "
     "0.05 below PPO's.", {"learner": "PPO"}, {"learner": "PPO-M"}, ERROR, "error"),
    ("ppo-c-is-better-calibrated", "Where comparisons prefer confident wording PPO-C's calibration error is "
     "0.05 below PPO's.", {"learner": "PPO"}, {"learner": "PPO-C"}, ERROR, "error"),
    ("calibration-costs-no-accuracy", "Where comparisons prefer confident wording PPO-M and "
     "PPO-C are each at most 0.02 less accurate than PPO.",
     {"learner": ("PPO-M", "PPO-C")}, {"learner": "PPO"}, -SAME),
    over={"bias": BIASES[1]},
)  # fmt: skip
