"""One expected step of a registered objective on a softmax policy over A one-token answers.

The batch holds every answer of every context once; the expectation weighs them by mu. A batch statistic that
weighs its tokens by mu (BAPO's share) is therefore that of an infinite batch; one that counts all tokens
equally is not.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import special

from envs.arrays import Floats
from testbed.data.batch import Batch
from testbed.errors import UserError
from testbed.inspection.effective_weights import effective_weights


def answer_weights(
    name: str, log_pi_xA: ArrayLike, mu_xA: ArrayLike, adv_xA: ArrayLike, **hyper: Any
) -> Floats:
    """Return each answer's effective weight, [A] or [S, A]; mu is anchor and reference, the reward is the
    advantage, a context is a group.

    Raises UserError for arrays of different shapes, or if mu gives an answer no mass.
    """
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


Adv = Callable[[Floats], Floats]


def inner_steps(name: str, mu_xA: Floats, adv_xA: Floats, *, steps: int, rate: float, **hyper: Any) -> Floats:
    """Return log pi after 0 … `steps` expected steps from mu on data of mu, [steps + 1, (S,) A]."""
    path = [np.log(mu_xA)]
    for _ in range(steps):
        moved_xA = path[-1] + rate * expected_update(name, path[-1], mu_xA, adv_xA, **hyper)
        path.append(special.log_softmax(moved_xA, axis=-1))
    return np.stack(path)


def replayed(
    name: str, start_xA: Floats, adv: Adv, *, rounds: int, steps: int, rate: float, **hyper: Any
) -> Floats:
    """Return log pi after 0 … `rounds` rounds of `steps` expected steps, each on data of its starting policy,
    [rounds + 1, (S,) A]. adv: mu -> advantages.
    """
    path = [np.log(np.asarray(start_xA, dtype=np.float64))]
    for _ in range(rounds):
        mu_xA = np.exp(path[-1])
        path.append(inner_steps(name, mu_xA, adv(mu_xA), steps=steps, rate=rate, **hyper)[-1])
    return np.stack(path)
