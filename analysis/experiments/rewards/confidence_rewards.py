"""A reward that likes confident answers: PPO, PPO with a calibrated reward model (PPO-M), PPO-C's moving
average.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Plot, Seeds, columns, exact, exceeds, of_seeds
from envs.arrays import Floats
from testbed.exact.bandit import exact_moments
from testbed.offline.imperfect_rewards import (
    calibration_error,
    confident_policy,
    own_sample_in_average,
    shaped_reward,
)
from testbed.offline.preferences import tilt
from testbed.rng import generator

NAME = "confidence-rewards"
SEEDS, PROMPTS, ANSWERS, BETA = 16, 12, 4, 0.1
SAID = (0.05, 0.25, 0.5, 0.75, 0.95)
BIAS, WEIGHT, PRICE = 0.5, 1.0, 1.0
"""Reward per unit of confidence, PPO-C's weight, and PPO-M's reward per unit for right answers, its cost for
wrong.
"""
ERROR, SAME = 0.05, 0.02
"""Calibration error that counts as lower, accuracy that counts as equal. Set before the table was made."""


def paid(learner: str) -> Floats:
    """Return the reward of a wrong and of a right answer said with each confidence, [2, K]."""
    said_K = np.array(SAID)
    if learner == "PPO-M":
        return np.stack([-PRICE * (said_K - 0.5), 1.0 + PRICE * (said_K - 0.5)])
    return np.stack([BIAS * said_K, 1.0 + BIAS * said_K])


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return calibration error, accuracy and mean confidence where RL with a KL penalty ends, by learner."""
    said_K = np.array(SAID)
    for seed in seeds:
        rng = generator(seed, NAME)
        # The best answer to a prompt is right with a chance up to 0.9: there is something to be unsure of.
        right_SA = rng.uniform(0.1, 0.9, (PROMPTS, 1)) * rng.random((PROMPTS, ANSWERS))
        ref_SAK = np.full((PROMPTS, ANSWERS, len(SAID)), 1 / (ANSWERS * len(SAID)))
        for learner in ("PPO", "PPO-M", "PPO-C"):
            weight = WEIGHT if learner == "PPO-C" else 0.0
            pi_SAK = confident_policy(ref_SAK, right_SA, paid(learner), said_K, BETA, weight)
            accuracy = float((pi_SAK.sum(-1) * right_SA).sum() / PROMPTS)
            mean = float((pi_SAK * said_K).sum() / PROMPTS)
            yield columns(
                (seed,),
                learner=learner,
                error=calibration_error(pi_SAK, right_SA, said_K),
                accuracy=accuracy,
                confidence=mean,
            )


EXPERIMENT = Experiment(
    NAME,
    question=(
        "Do PPO-M and PPO-C lower the calibration error that a confident reward model makes, at equal "
        "accuracy?"
    ),
    source="Leng et al. (2024), Taming overconfidence in LLMs, arXiv:2410.09724",
    differs=(
        "one answer and one of five confidences; the tilt in place of training; PPO-M's model is made, not "
        "fitted"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"prompts": PROMPTS, "beta": BETA, "bias": BIAS, "weight": WEIGHT}),
    keys=("run", "seed", "learner"),
    metrics=("error", "accuracy", "confidence"),
    margins={"calibration error": ERROR, "accuracy": SAME},
    figure=Plot("distribution", x="learner", y="error: calibration error"),
    systems=("PPO-M / PPO-C",),
)


@EXPERIMENT.claim(source="derived here")
def own_sample_shrinks_a_moving_average() -> Evidence:
    """With the own sample in the average of its batch PPO-C's difference shrinks to 1 - (1 - decay) / batch
    of it, by enumeration of the others' mean; its level is where the policy's mean reward is.
    """
    gaps, chance_K, reward_K = [], np.array([0.5, 0.3, 0.2]), np.array([0.0, 0.4, 1.0])
    mean = float(chance_K @ reward_K)
    for batch, decay in ((2, 0.9), (4, 0.5), (4, 0.0)):
        factor = own_sample_in_average(reward_K, chance_K, batch, decay, mean)
        for own in reward_K:

            def statistic(
                count_RK: Floats, own: float = float(own), n: int = batch, keep: float = decay
            ) -> Floats:
                return np.asarray(own - keep * mean - (1 - keep) * (own + count_RK @ reward_K) / n)

            found = exact_moments(batch - 1, chance_K, statistic).mean
            gaps.append(abs(found - factor * (own - mean)))
        gaps.append(abs(factor - (1 - (1 - decay) / batch)))
    said_K, right_SA = np.array(SAID), np.array([[0.2, 0.9], [0.5, 0.4]])
    ref_SAK, (wrong_K, right_K) = np.full((2, 2, 5), 0.1), paid("PPO-C")
    mean_SAK = right_SA[..., None] * right_K + (1 - right_SA[..., None]) * wrong_K
    pi_SAK = confident_policy(ref_SAK, right_SA, paid("PPO-C"), said_K, BETA, WEIGHT)
    rest = shaped_reward(mean_SAK, said_K, WEIGHT, float((pi_SAK * mean_SAK).sum() / 2))
    gaps.append(
        float(np.abs(tilt(ref_SAK.reshape(2, -1), rest.reshape(2, -1), BETA) - pi_SAK.reshape(2, -1)).max())
    )
    return exact(gaps, 1e-9, "largest distance of the factor, or of the policy at rest")


for _learner in ("PPO-M", "PPO-C"):
    EXPERIMENT.claim(
        f"{_learner.lower()}-is-better-calibrated",
        statement=f"{_learner}'s calibration error is 0.05 below PPO's.",
    )(exceeds(ERROR, "error", {"learner": "PPO"}, {"learner": _learner}))

EXPERIMENT.claim(
    "calibration-costs-no-accuracy", "PPO-M and PPO-C are each at most 0.02 less accurate than PPO."
).compare("accuracy", {"learner": ("PPO-M", "PPO-C")}, {"learner": "PPO"}, by=-SAME)
