"""One expected step of a registered objective on a softmax policy over A one-token answers.

The batch holds every answer of every context once; the expectation weighs them by mu. A batch statistic that
weighs its tokens by mu (BAPO's share) is therefore that of an infinite batch; one that counts all tokens
equally is not.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from analysis.kernels.on_use import torch
from envs.arrays import Floats
from testbed.errors import UserError


def answer_weights(
    name: str, log_pi_xA: ArrayLike, mu_xA: ArrayLike, adv_xA: ArrayLike, **hyper: Any
) -> Floats:
    """Return each answer's effective weight, [A] or [S, A]; mu is anchor and reference, the reward is the
    advantage, a context is a group.

    Raises UserError for arrays of different shapes, or if mu gives an answer no mass.
    """
    from testbed.data.batch import Batch
    from testbed.inspection.effective_weights import effective_weights

    log_pi_xA, mu_xA, adv_xA = (np.asarray(x, dtype=np.float64) for x in (log_pi_xA, mu_xA, adv_xA))
    if not log_pi_xA.shape == mu_xA.shape == adv_xA.shape or mu_xA.ndim not in (1, 2):
        raise UserError(
            f"log pi, mu and advantages have shapes {log_pi_xA.shape}, {mu_xA.shape}, {adv_xA.shape}; "
            "expected one shape, [A] or [S, A]."
        )
    if not (mu_xA > 0).all():
        raise UserError(
            "mu gives some answer probability 0, so a ratio is infinite. Mix in the uniform distribution."
        )
    log_mu, log_pi, adv = (torch.from_numpy(x.reshape(-1, 1)) for x in (np.log(mu_xA), log_pi_xA, adv_xA))
    group_B = torch.arange(mu_xA.size) // mu_xA.shape[-1]
    batch = Batch(log_mu, adv, torch.ones_like(adv, dtype=torch.bool), adv[:, 0], group_B, logp_ref_BT=log_mu)
    found: Floats = effective_weights(name, log_pi, batch, **hyper).numpy()
    return found.reshape(mu_xA.shape)


def expected_update(
    name: str, log_pi_xA: ArrayLike, mu_xA: ArrayLike, adv_xA: ArrayLike, **hyper: Any
) -> Floats:
    """E_mu[w (onehot(a) - pi)] of every context, the mean step of the logits, [A] or [S, A]."""
    pulled_xA = np.asarray(mu_xA) * answer_weights(name, log_pi_xA, mu_xA, adv_xA, **hyper)
    return np.asarray(pulled_xA - pulled_xA.sum(-1, keepdims=True) * np.exp(log_pi_xA))


def entropy_rate(pi_A: ArrayLike, update_A: ArrayLike) -> float:
    """dH/dt along dtheta/dt = update: -sum_a pi_a (log pi_a + H) update_a."""
    pi = np.asarray(pi_A, dtype=np.float64)
    surprise_A = np.log(pi) - pi @ np.log(pi)
    return float(-(pi * surprise_A * np.asarray(update_A)).sum())
