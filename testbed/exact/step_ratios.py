"""Ratios of Gaussian denoising steps with fresh noise at every step: how often a clip binds.

A step draws x ~ N(m, sigma^2 I) in D dimensions and the new mean is m + shift. Averaged over dimensions, as
in public code, the log-ratio is normal with mean -shift^2 / (2 sigma^2) and standard deviation shift / (sigma
sqrt D): its mean is negative, more so at steps with little noise. GRPO-Guard (arXiv:2510.22319) removes the
mean and the step's scale.
"""

import numpy as np
import torch
from torch import Tensor

from envs.arrays import Floats
from testbed.errors import UserError


def log_ratio_moments(
    shift_T: Floats, sigma_T: Floats, dims: int, averaged: bool = True
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of every step's log-ratio, [T]; averaged over dimensions, or summed.

    Raises UserError for a noise that is not above 0.
    """
    if not (np.asarray(sigma_T) > 0).all():
        raise UserError("sigma is the noise of a step, expected above 0: without noise no step has a ratio.")
    distance_T = np.asarray(shift_T / sigma_T)
    mean_T, std_T = -(distance_T**2) / 2, distance_T / np.sqrt(dims)
    return (mean_T, std_T) if averaged else (dims * mean_T, dims * std_T)


def normalized(law: tuple[Floats, Floats], scale: float) -> tuple[Floats, Floats]:
    """Distribution of a log-ratio with mean 0 and standard deviation `scale` at every step."""
    mean_T, std_T = law
    return np.zeros_like(mean_T), np.full_like(std_T, scale)


def log_ratios(noise_BTD: Tensor, shift_TD: Tensor, sigma_T: Tensor, *, normalize: bool = False) -> Tensor:
    """Log-ratios of drawn steps x = m + sigma noise, averaged over dimensions, [..., B, T].

    (shift . noise / sigma - |shift|^2 / (2 sigma^2)) / D; normalized shift . noise / D, GRPO-Guard's form:
    the mean removed, times sigma.
    """
    along_BT = torch.einsum("...btd,...td->...bt", noise_BTD, shift_TD)
    far_1T = shift_TD.square().sum(-1)[..., None, :]
    plain_BT = along_BT / sigma_T - far_1T / (2 * sigma_T**2)
    return (along_BT if normalize else plain_BT) / shift_TD.shape[-1]
