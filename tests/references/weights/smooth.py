"""Rows of the smooth family: slopes of scalar surrogates."""

import math

import numpy as np


def sapo(u, adv):
    # Closed form: the derivative of the logistic function in terms of cosh.
    tau = 1.0 if adv > 0 else 1.05
    return adv * u / math.cosh(tau * (u - 1) / 2) ** 2


def sapo_gate(u, adv):
    tau = 1.0 if adv > 0 else 1.05
    return adv * 4 / (tau * (1 + math.exp(tau * (1 - u))))


def mhpo(u, adv):
    psi = 1.5 * math.tanh(math.log(u) / 1.5)
    hazard = math.log1p(math.exp(psi)) ** 1.5 + (math.log1p(math.exp(-psi)) / 0.8) ** 2
    return adv * math.exp(psi - hazard) / math.cosh(math.log(u) / 1.5) ** 2


def toward(u, target, adv):
    """Minus the slope of |u - target| |A|."""
    return abs(adv) * u * (1 if u < target else -1 if u > target else 0)


def members(s, rows):
    return sorted(row.reward for row in rows if row.group == s.group)


def middle(values):
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def gbpo(s, rows, low=0.8, high=1.2):
    gap = s.reward - middle(members(s, rows))
    target = (low + high) / 2 if gap == 0 else high if gap > 0 else low
    return np.array([toward(x, target, s.adv) for x in s.u])


def gbpo_author(s, rows):
    group = members(s, rows)
    spread = 1.0 if len(group) == 1 else np.std(group, ddof=1) + 1e-6
    share = 1 / (1 + math.exp(-(s.reward - middle(group)) / spread))
    return np.array([toward(x, 0.8 + 0.4 * share, s.adv) for x in s.u])


CASES = [
    ("gbpo", {"eps_low": 0.3, "eps_high": 0.1}, lambda s, rows: gbpo(s, rows, 0.7, 1.1)),
]

WEIGHTS = {
    "sapo": lambda s, rows: np.array([sapo(x, s.adv) for x in s.u]),
    "sapo@trinity": lambda s, rows: np.array([sapo_gate(x, s.adv) for x in s.u]),
    "mhpo": lambda s, rows: np.array([mhpo(x, s.adv) for x in s.u]),
    "r2vpo": lambda s, rows: np.array([x * (s.adv - 0.08 * (x - 1)) for x in s.r]),
    "bpo": lambda s, rows: np.array([toward(x, 1.3 if s.adv > 0 else 0.7, s.adv) for x in s.u]),
    "gbpo": gbpo,
    "gbpo@author": gbpo_author,
}

F1 = [
    ("sapo", {}, (1.4100, 0.4700), (0.4671, 1.2287, 0.6304)),
    ("sapo@trinity", {}, (2.4898, 1.5102), (1.4159, 2.1533, 3.6530)),
    ("mhpo", {}, (0.3832, 0.0544), (0.0544, 0.3428, 0.2425)),
    ("r2vpo", {}, (1.44, 0.52), (0.48, 1.275, 4.96)), ("r2vpo", {"lam": 0.0}, (1.5, 0.5), (0.5, 1.25, 4.0)),
    ("gbpo", {}, (-1.5, 0.5), (-0.5, 1.25, 4.0)), ("bpo", {"eps": 0.2}, (-1.5, 0.5), (-0.5, 1.25, 4.0)),
]  # fmt: skip
