"""Distillation under a trust region, in closed form for tables."""

from __future__ import annotations

import numpy as np

from envs.arrays import Floats


def geometric_mixture(base_xA: Floats, far_xA: Floats, share: float) -> Floats:
    """Return base^(1 - share) far^share over its sum, row by row: the law nearest to far at its KL from base.

    The minimizer of KL(pi, far) within KL(pi, base) <= delta has this form (Lagrange); delta grows with
    share. Both laws must be positive. Own derivation.
    """
    log_xA = (1 - share) * np.log(base_xA) + share * np.log(far_xA)
    power_xA = np.exp(log_xA - log_xA.max(-1, keepdims=True))
    law_xA: Floats = power_xA / power_xA.sum(-1, keepdims=True)
    return law_xA
