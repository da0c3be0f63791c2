"""Losses that fit a posterior, ref exp(R / beta) / Z: self-normalized distillation, log-variance, reverse KL.

Policies are distributions over A answers; expectations over samples are enumerated as counts.
"""

import numpy as np

from envs.arrays import Floats


def brain_step(
    count_RA: Floats, pi_RA: Floats, sampler_A: Floats, posterior_A: Floats, baseline: bool = True
) -> Floats:
    """Return the step of each of R samples with these counts of answers [R, A]; pi is [A] or [R, A]."""
    share_RA = np.asarray(_normalized(count_RA * (posterior_A / sampler_A)))
    if baseline:
        share_RA = share_RA - _normalized(count_RA * (pi_RA / sampler_A))
    return share_RA - share_RA.sum(-1, keepdims=True) * pi_RA


def _normalized(weight_RA: Floats) -> Floats:
    return np.asarray(weight_RA / weight_RA.sum(-1, keepdims=True))


def moments(step_RA: Floats, chance_R: Floats) -> tuple[Floats, float]:
    """Mean step [A], and trace of the covariance."""
    mean_A = chance_R @ step_RA
    return mean_A, float(chance_R @ ((step_RA - mean_A) ** 2).sum(-1))
