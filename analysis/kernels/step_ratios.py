"""Ratios of Gaussian denoising steps with fresh noise at every step: how often a clip binds.

A step draws x ~ N(m, sigma^2 I) in D dimensions and the new mean is m + shift. Averaged over dimensions, as
in public code, the log-ratio is normal with mean -shift^2 / (2 sigma^2) and standard deviation shift / (sigma
sqrt D): its mean is negative, more so at steps with little noise. GRPO-Guard (arXiv:2510.22319) removes the
mean and the step's scale.
"""

from __future__ import annotations

from analysis.kernels.on_use import Tensor, torch


def log_ratios(noise_BTD: Tensor, shift_TD: Tensor, sigma_T: Tensor, *, normalize: bool = False) -> Tensor:
    """Log-ratios of drawn steps x = m + sigma noise, averaged over dimensions, [..., B, T].

    (shift . noise / sigma - |shift|^2 / (2 sigma^2)) / D; normalized shift . noise / D, GRPO-Guard's form:
    the mean removed, times sigma.
    """
    along_BT = torch.einsum("...btd,...td->...bt", noise_BTD, shift_TD)
    far_1T = shift_TD.square().sum(-1)[..., None, :]
    plain_BT = along_BT / sigma_T - far_1T / (2 * sigma_T**2)
    return (along_BT if normalize else plain_BT) / shift_TD.shape[-1]
