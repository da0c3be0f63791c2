"""Controllers of a KL penalty on a bandit, under exact gradients: fixed, PID, gated by entropy."""

from dataclasses import dataclass

import numpy as np

from envs.arrays import Floats
from testbed.errors import UserError
from testbed.exact.tree import softmax


@dataclass(frozen=True)
class Control:
    """Control rule for a penalty's coefficient beta, from the current KL and its target.

    beta: the start value, constant if all gains are 0. With the error e = KL / target - 1, capped at 1, the
    coefficient is beta exp(proportional e + integral (sum of e) + derivative (change of e)).
    gate: share of the largest entropy below which a positive correction is multiplied by `gated`; 0 disables
    the gate.
    """

    beta: float = 0.1
    proportional: float = 0.0
    integral: float = 0.0
    derivative: float = 0.0
    gate: float = 0.0
    gated: float = 2.0

    def __post_init__(self) -> None:
        """Raise UserError for a negative number."""
        for name, value in vars(self).items():
            if not value >= 0:
                raise UserError(f"{name} of a KL control is {value}, expected 0 or more.")


@dataclass(frozen=True)
class Path:
    """Path of the ascent: KL(pi, start) in nats, expected reward, coefficient; [K] each."""

    kl_K: Floats
    reward_K: Floats
    beta_K: Floats


def ascend(
    reward_A: Floats, control: Control, target: float, *, steps: int = 2000, rate: float = 0.5
) -> Path:
    """Ascend E[reward] - beta KL(pi, uniform) with exact gradients in the logits, beta by a controller.

    Raises UserError for an unreachable target: it must be above 0 and below log A.
    """
    most = float(np.log(len(reward_A)))
    if not 0 < target < most:
        raise UserError(f"target is {target} nats; expected above 0 and below log A = {most:.3g}.")
    logits_A, before, total = np.zeros(len(reward_A)), 0.0, 0.0
    found = []
    for step in range(steps):
        pi_A = softmax(logits_A)
        log_A = np.log(pi_A) + most
        kl = float(pi_A @ log_A)
        error = min(kl / target - 1.0, 1.0)
        total += error
        change = error - before if step else 0.0
        correction = control.proportional * error + control.integral * total + control.derivative * change
        if correction > 0 and most - kl < control.gate * most:
            correction *= control.gated
        beta, before = control.beta * float(np.exp(correction)), error
        found.append((kl, float(pi_A @ reward_A), beta))
        gain_A = reward_A - beta * log_A
        logits_A = logits_A + rate * pi_A * (gain_A - pi_A @ gain_A)
    kl_K, reward_K, beta_K = np.array(found).T
    return Path(kl_K, reward_K, beta_K)
