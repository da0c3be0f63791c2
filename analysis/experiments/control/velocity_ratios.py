"""PolicyFlow: PPO with ratios read from velocity fields in place of densities, where both are known."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import (
    Evidence,
    Experiment,
    Plot,
    combinations,
    exact,
    of_keys,
    short_of,
)
from envs.arrays import Floats
from envs.continuous import BumpBandit, normals
from testbed.offline.continuous import gaussian_log_ratio, velocity_log_ratio

NAME = "velocity-ratios"
SEEDS, SAMPLES, PATHS, ITERATIONS, PASSES, CLIP = 20, 256, 8, 40, 8, 0.2
RATES = {"slow": 0.01, "fast": 0.1}
RATIOS = ("exact", "velocity", "velocity doubled")
SHIFTS = (0.05, 0.1, 0.2, 0.4)
"""Of the policy: the mean moves by so much, the log of the deviation falls by so much."""
SMALL, WORSE = 0.2, 0.02
"""Relative error of the log ratio; exact expected reward, at most 1 here."""


def make(key_R: NDArray[np.uint64]) -> pd.DataFrame:
    """Return relative errors of velocity log ratios by shift, and final values of PPO with each."""
    action_RN, noise_RNK = normals(key_R, 0, SAMPLES, 1)[..., 0], normals(key_R, 1, SAMPLES, PATHS)
    zero, one = np.zeros(()), np.ones(())
    frame, _ = combinations(key_R, ratio=RATIOS, shift=SHIFTS)
    errors = []
    for ratio in RATIOS:
        for shift in SHIFTS:
            new = (np.asarray(shift), np.exp(-np.asarray(shift)))
            true_RN = gaussian_log_ratio(action_RN, new, (zero, one))
            scale = 2.0 if ratio == "velocity doubled" else 1.0
            found_RN = velocity_log_ratio(action_RN, noise_RNK, new, (zero, one), scale=scale)
            off_R = ((found_RN if ratio != "exact" else true_RN) - true_RN).std(-1) / true_RN.std(-1)
            errors.append(off_R)
    frame["error"] = np.concatenate(errors)
    for speed, rate in RATES.items():
        frame[speed] = np.concatenate([np.tile(_ppo(key_R, ratio, rate), len(SHIFTS)) for ratio in RATIOS])
    return frame


def _ppo(key_R: NDArray[np.uint64], ratio: str, rate: float) -> NDArray[np.float64]:
    """Final exact value of PPO on a bump at 1, from N(-0.5, 0.8^2); gradients by central differences."""
    bandit = BumpBandit(
        center_K=np.array([1.0]), tilt_K=np.zeros(1), height_K=np.array([1.0]), width_K=np.array([0.5])
    )
    policy_R2 = np.tile([-0.5, np.log(0.8)], (len(key_R), 1))
    for iteration in range(ITERATIONS):
        drawn_RNK = normals(key_R, iteration + 2, SAMPLES, PATHS + 2)
        old_R2 = policy_R2
        action_RN = old_R2[:, :1] + np.exp(old_R2[:, 1:]) * drawn_RNK[..., 0]
        reward_RN = bandit.mean_reward(0.0, action_RN) + bandit.reward_std * drawn_RNK[..., 1]
        advantage_RN = (reward_RN - reward_RN.mean(-1, keepdims=True)) / reward_RN.std(-1, keepdims=True)
        for _ in range(PASSES):
            slope_R2 = np.empty_like(policy_R2)
            for i, step_2 in enumerate(1e-4 * np.eye(2)):
                up_R, down_R = (
                    _surrogate(policy_R2 + sign * step_2, old_R2, action_RN, drawn_RNK[..., 2:], advantage_RN,
                               ratio) for sign in (1.0, -1.0)
                )  # fmt: skip
                slope_R2[:, i] = (up_R - down_R) / 2e-4
            policy_R2 = policy_R2 + rate * slope_R2
    return bandit.mean_reward(0.0, policy_R2[:, 0], np.exp(policy_R2[:, 1]))


def _surrogate(
    new_R2: Floats, old_R2: Floats, action_RN: Floats, noise_RNK: Floats, advantage_RN: Floats, ratio: str
) -> Floats:
    """PPO's clipped surrogate, [R], with the ratio in question."""
    new, old = ((each[:, :1], np.exp(each[:, 1:])) for each in (new_R2, old_R2))
    if ratio == "exact":
        log_RN = gaussian_log_ratio(action_RN, new, old)
    else:
        scale = 2.0 if ratio == "velocity doubled" else 1.0
        log_RN = velocity_log_ratio(action_RN, noise_RNK, new, old, scale=scale)
    rho_RN = np.exp(log_RN)
    clipped_RN = np.clip(rho_RN, 1 - CLIP, 1 + CLIP)
    return np.minimum(rho_RN * advantage_RN, clipped_RN * advantage_RN).mean(-1)


EXPERIMENT = Experiment(
    NAME,
    question="How good are ratios from velocity fields, and does PPO with them learn as well?",
    source="Yang et al. (2025), PolicyFlow, of which a summary alone was read; McAllister et al. (2025), FPO",
    differs="rectified flows to one Gaussian, whose density is known; no Brownian term, one mode",
    compute=of_keys(NAME, make, SEEDS, {"paths": PATHS, "iterations": ITERATIONS}),
    keys=("run", "ratio", "shift", "seed"),
    metrics=("error", *RATES),
    margins={"relative error that counts as small": SMALL, "value that counts as worse": WORSE},
    figure=Plot(
        "final by setting", x="shift: shift of mean and log deviation",
        y="error: relative error of the log ratio", arm=("ratio",),
    ),
    systems=("PolicyFlow",),
)  # fmt: skip


EXPERIMENT.claim(
    "velocity-ratios-are-not-small-step-exact",
    """However small the step, the velocity log ratio of 8 paths is off by more than 0.2 of the true
    one's deviation, at shifts from 0.05 to 0.4.""",
    source="PolicyFlow, for the opposite: a small error of the ratio",
).compare("error", {"ratio": "velocity", "shift": SHIFTS}, by=SMALL)


EXPERIMENT.claim(
    "ppo-with-velocity-ratios-learns-as-well",
    """With step size 0.01 PPO with velocity ratios ends at most 0.02 of expected reward below PPO with
    exact ones after 40 iterations.""",
).compare("slow", {"ratio": "exact"}, {"ratio": "velocity"}, by=WORSE, below=True, over={"shift": SHIFTS[0]})


EXPERIMENT.claim(
    "ppo-with-velocity-ratios-survives-large-steps",
    """With step size 0.1, at which PPO with exact ratios overshoots, that with velocity ratios ends
    0.02 of expected reward higher.""",
    source="this project",
).compare("fast", {"ratio": "velocity"}, {"ratio": "exact"}, by=WORSE, over={"shift": SHIFTS[0]})


@EXPERIMENT.claim(source="this project")
def velocity_ratios_do_not_average_to_one() -> Evidence:
    """Under the old policy the ratio of densities averages to 1, for four shifts, and the exponential of the
    expected velocity log ratio misses it by more than 0.01 at the largest.
    """
    place_Q, mass_Q = np.polynomial.hermite_e.hermegauss(60)
    mass_Q = mass_Q / mass_Q.sum()
    old, gaps, missed = (np.zeros(()), np.ones(())), [], 0.0
    for shift in SHIFTS:
        new = (np.asarray(shift), np.exp(-np.asarray(shift)))
        gaps.append(abs(float(mass_Q @ np.exp(gaussian_log_ratio(place_Q, new, old))) - 1.0))
        # The same noise on every path, one of 64 times: the expectation over noise by quadrature.
        each_QP = np.stack(
            [velocity_log_ratio(place_Q, np.full((60, 64), noise), new, old) for noise in place_Q], axis=-1
        )
        missed = abs(float(mass_Q @ np.exp(each_QP @ mass_Q)) - 1.0)
    gaps.append(short_of(missed, 0.01))
    return exact(gaps, 1e-6, f"largest distance from 1; the velocity ratio misses by {missed:.3f}")
