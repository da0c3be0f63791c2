"""Losses that fit a posterior, ref exp(R / beta) / Z: self-normalized distillation, log-variance, reverse KL.

Policies are laws over A answers; expectations over samples are enumerated as counts.
"""

import numpy as np

from envs.arrays import Floats
from testbed.errors import UserError, unknown
from testbed.exact.bandit import count_law
from testbed.exact.flows import Drift, tilt


def brain_steps(
    log_pi_A: Floats,
    sampler_A: Floats,
    ref_A: Floats,
    reward_A: Floats,
    *,
    n: int,
    beta: float,
    baseline: bool = True,
) -> tuple[Floats, Floats, Floats]:
    """Steps sum_i (a_i - b_i) grad log pi(y_i) of every sample of n answers [R, A], chances [R], target [A].

    a_i are the normalized weights posterior / sampler, b_i those of pi / sampler, BRAIn's self-normalized
    baseline; without it b = 0. target: E_posterior grad log pi = posterior - pi. Source:
    Pandey et al. (2024),
    arXiv:2402.02479, equations 11 and 14 as read in secondary sources.

    Raises UserError for a sampler without mass on an answer, or too many samples to enumerate.
    """  # fmt: skip
    if not (sampler_A > 0).all():
        raise UserError(
            "The sampler gives some answer probability 0, so its weight is infinite. Mix in the reference."
        )
    posterior_A, pi_A = tilt(ref_A, reward_A, beta), np.exp(log_pi_A)
    count_RA, chance_R = count_law(n, sampler_A)
    step_RA = brain_step(count_RA.astype(np.float64), pi_A, sampler_A, posterior_A, baseline)
    return step_RA, chance_R, posterior_A - pi_A


def brain_step(
    count_RA: Floats, pi_RA: Floats, sampler_A: Floats, posterior_A: Floats, baseline: bool = True
) -> Floats:
    """The step of each of R samples with these counts of answers [R, A]; pi [A], or one each [R, A]."""
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


LOSSES = ("log-variance", "reverse KL", "reverse KL with baseline")


def path_steps(
    log_pi_A: Floats, sampler_A: Floats, ref_A: Floats, reward_A: Floats, *, n: int, beta: float, loss: str
) -> tuple[Floats, Floats]:
    """Steps of a batch of n answers, [R, A], and their chances [R].

    d = log(pi / ref) - R / beta. "log-variance": -sum_i (d_i - mean d) grad log pi(y_i) / (n - 1), half the
    gradient of the batch's variance of d, whoever sampled (Richter et al. 2020, VarGrad; TPS-DPS). "reverse
    KL": -mean_i w_i d_i grad log pi(y_i), w = pi / sampler; with baseline d less its mean under pi.
    """
    if loss not in LOSSES:
        raise unknown("posterior loss", loss, LOSSES)
    pi_A = np.exp(log_pi_A)
    gap_A = log_pi_A - np.log(ref_A) - reward_A / beta
    count_RA, chance_R = count_law(n, sampler_A)
    if loss == "log-variance":
        mean_R1 = (count_RA @ gap_A)[:, None] / n
        pulled_RA = -count_RA * (gap_A - mean_R1) / (n - 1)
    else:
        level = float(pi_A @ gap_A) if loss == "reverse KL with baseline" else 0.0
        pulled_RA = -count_RA * (pi_A / sampler_A) * (gap_A - level) / n
    return pulled_RA - pulled_RA.sum(-1, keepdims=True) * pi_A, chance_R


def reverse_kl_drift(ref_A: Floats, reward_A: Floats, beta: float) -> Drift:
    """Minus the gradient of KL(pi || posterior): the log-variance loss on samples of pi itself."""

    def drift(log_pi_A: Floats) -> Floats:
        gap_A, pi_A = log_pi_A - np.log(ref_A) - reward_A / beta, np.exp(log_pi_A)
        return -pi_A * (gap_A - pi_A @ gap_A)

    return drift


def log_variance_drift(sampler_A: Floats, ref_A: Floats, reward_A: Floats, beta: float) -> Drift:
    """Minus half the gradient of Var_sampler(log(pi / ref) - R / beta), the sampler fixed."""

    def drift(log_pi_A: Floats) -> Floats:
        gap_A = log_pi_A - np.log(ref_A) - reward_A / beta
        return -sampler_A * (gap_A - sampler_A @ gap_A)

    return drift
