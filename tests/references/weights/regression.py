"""Rows of the squared-error and mirror-descent family."""

import numpy as np


def mates(s, rows):
    """The sequences of the same group, the sequence itself included."""
    return [row for row in rows if row.group == s.group]


def log_product(ratios):
    return float(np.sum(np.log(ratios)))


def soft_value(s, rows, beta):
    """beta log mean exp(R / beta)"""
    return beta * np.log(np.mean([np.exp(row.reward / beta) for row in mates(s, rows)]))


def group_mean(s, rows):
    return np.mean([row.reward for row in mates(s, rows)])


def oapl(s, rows, beta1=1.0, beta2=1e-3):
    # d/dlogp of (beta2 x - a)^2 is 2 beta2 (beta2 x - a).
    advantage = s.reward - soft_value(s, rows, beta1)
    return s.ones * 2 * beta2 * (advantage - beta2 * log_product(s.r))


def oapl_nemo_rl(s, rows, beta1=1.0, beta2=1e-3):
    advantage = s.reward - soft_value(s, rows, beta1)
    return s.ones * 2 * beta2 / s.n * (advantage - beta2 * np.mean(np.log(s.r)))


def rebel(s, rows, eta=1.0):
    # Every ordered pair (i, j) counts (e_i - e_j)^2 / (G - 1), so that e_k meets each mate twice.
    def error(row):
        return log_product(row.r) - eta * row.reward

    others = [row for row in mates(s, rows) if row is not s]
    if not others:
        return 0 * s.ones
    return -s.ones * sum(4 * (error(s) - error(row)) for row in others) / len(others)


def tba(s, rows, beta=0.014):
    errors = [log_product(row.v) - row.reward / beta for row in mates(s, rows)]
    return -2 * s.ones * (log_product(s.v) - s.reward / beta - np.mean(errors))


def asymre(s, rows, shift=-0.1):
    baseline = group_mean(s, rows) + shift if len(mates(s, rows)) > 1 else 0.0
    return s.ones * (s.reward - baseline)


def pairwise_opmd(s, rows, tau=1.0):
    # Each pair's (d_k - d_j)^2 has gradient -2 tau (R_k - R_j) at log pi = sg[log pi].
    return s.ones * sum(2 * tau * (s.reward - row.reward) for row in mates(s, rows))


WEIGHTS = {
    "oapl": oapl,
    "oapl@nemo-rl": oapl_nemo_rl,
    "a_star_po": lambda s, rows: 2e-3 * s.ones * (s.adv - 1e-3 * log_product(s.v)),
    "rebel": rebel,
    "tba": tba,
    "asymre": asymre,
    "mdpo": lambda s, rows: s.u * s.adv - s.u * np.log(s.u),
    "dro": lambda s, rows: s.ones * (s.adv - log_product(s.v)),
    "dro@verl": lambda s, rows: s.adv - 0.1 * np.log(s.u),
    "dro@tinker": lambda s, rows: s.adv - 0.05 * np.log(s.r),
    "kimi_opmd": lambda s, rows: s.ones * (s.adv - log_product(s.r)),
    "kimi_opmd@roll": lambda s, rows: s.adv - 0.1 * np.log(s.u),
    "rec_k2": lambda s, rows: s.adv - 0.2 * np.log(s.r),
    "min_opmd": lambda s, rows: s.ones * s.adv / 2,
    "pairwise_opmd": pairwise_opmd,
    "pairwise_opmd@trinity": lambda s, rows: 2 * s.ones * (s.reward - group_mean(s, rows)),
}

# F1 is one group with rewards +1 and -1; its sequence ratios are 0.75 and 2.5.
F1 = [
    ("oapl", {"beta1": np.inf, "beta2": 0.5}, (1.1438, 1.1438), (1.4581, 1.4581, 1.4581)),
    ("oapl", {"beta1": 0.0, "beta2": 0.5}, (0.1438, 0.1438), (2.4581, 2.4581, 2.4581)),
    ("rebel", {"eta": 1.0}, (12.8159, 12.8159), (12.8159, 12.8159, 12.8159)),
    ("kimi_opmd", {}, (1.2877, 1.2877), (1.9163, 1.9163, 1.9163)),
    ("kimi_opmd@roll", {}, (0.9595, 1.0693), (0.9307, 1.0223, 1.1386)),
    ("mdpo", {}, (0.8918, 0.8466), (0.1534, 1.5289, 9.5452)),
    ("asymre", {}, (1.1, 1.1), (0.9, 0.9, 0.9)),
    ("min_opmd", {"tau": 3.0}, (0.25, 0.25), (0.25, 0.25, 0.25)),
    ("pairwise_opmd", {"tau": 0.5}, (2, 2), (2, 2, 2)),
    ("pairwise_opmd@trinity", {"tau": 4.0}, (2, 2), (2, 2, 2)),
]
