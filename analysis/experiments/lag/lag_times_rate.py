"""Claims about the product of lag and learning rate, at equal learning rate times steps."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from analysis.kernels.on_use import torch
from analysis.lab import Evidence, Experiment, Plot, exact, short_of
from testbed.config.run import Run, grid

SOURCE = (
    "arXiv:2607.01083: staleness costs what lag times learning rate says; read as curves that fall together"
)
MARGIN = 0.05
REWARD = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
START = np.array([0.0, 0.0, 0.0, 0.0, -4.0])
"""Logits at the start: the rewarded action is rare."""
EXACT_PRODUCTS = (0.0, 40.0, 160.0)
"""Lag times learning rate of the exact curves."""
MEAN = "mean exact/value"

TREE = Run(task="tree", recipe="reinforce", prompts=64, group=8)
RATES = (0.75, 1.5, 3.0)
PRODUCTS = (0, 12, 24, 48, 96, 192)
"""Lag times learning rate."""
HORIZON = 300
"""Learning rate times steps, equal in all cells."""


def cells() -> tuple[Run, ...]:
    """REINFORCE at six products of lag and learning rate, three rates each, with rate times steps fixed."""
    found: list[Run] = []
    for rate in RATES:
        steps = round(HORIZON / rate)
        run = replace(TREE, learning_rate=rate, steps=steps, log_every=steps // 20)
        found += grid(run, lag=[round(product / rate) for product in PRODUCTS], seed=range(10, 18))
    return tuple(found)


EXPERIMENT = Experiment(
    question="Is it lag times learning rate that counts?",
    source="arXiv:2607.01083: stale gradients cost what lag times learning rate says",
    differs="REINFORCE on a token tree; curves are drawn against learning rate times steps",
    cells=cells, fresh=range(1000, 1016), keys=("learning_rate", "lag", "seed"),
    metrics=("exact/value", "mean exact/value", "min exact/ess_kish_sequence"),
    margins={"mean value along the curve that counts as equal": MARGIN},
    figure=Plot(
        "final by setting", x="lag: lag (optimizer steps)", y=f"{MEAN}: mean exact value",
        arm=("learning_rate",), log="x",
    ),
)  # fmt: skip


@EXPERIMENT.claim(
    "only-lag-times-rate-counts-as-rates-fall",
    source=f"{SOURCE}; limit derived: theta' = g(theta(t), theta(t - product)), a delay equation",
)
def only_lag_times_rate_counts_as_rates_fall() -> Evidence:
    """With exact gradients on data of a fixed lag, value against rate times step depends on lag and rate only
    through their product, up to a difference that is first order in the rate: it halves with it.
    """
    curves = [_curves(rate) for rate in (0.4, 0.2, 0.1)]  # each [P, points]
    apart_2P = np.array([np.abs(a - b).max(-1) for a, b in pairwise(curves)])
    gaps = list(np.abs(apart_2P[0] / apart_2P[1] - 2.0))
    last, largest = curves[-1], float(apart_2P[-1].max())
    between = min(float(np.abs(a - b).max()) for a, b in pairwise(last))
    gaps.append(short_of(between, 10 * largest))
    note = (
        f"distance of the ratio from 2; at rate 0.1 curves of one product are {largest:.2g} apart, those of "
        f"two products {between:.2g}"
    )
    return exact(gaps, 0.1, note)


def _curves(rate: float, horizon: float = 320.0, points: int = 40) -> NDArray[np.float64]:
    """Return J at equal distances in rate * step for REINFORCE on each product's schedule, [P, points].

    Expectations are exact: each action's weight is averaged with its probability under the old policy.
    """
    from testbed.data.batch import Batch
    from testbed.inspection.effective_weights import effective_weights
    from testbed.staleness import plan_for

    plans = [plan_for(Run(lag=round(product / rate))) for product in EXACT_PRODUCTS]
    ages = [int(plan.distribution.age_K[0]) for plan in plans if plan.distribution]
    rows, reward_PA = np.arange(len(ages)), np.tile(REWARD, (len(ages), 1))
    mask_PA1 = torch.ones(*reward_PA.shape, 1, dtype=torch.bool)
    steps, past = round(horizon / rate), [np.tile(START, (len(ages), 1))]
    for step in range(steps):
        old_PA = np.array([past[max(step - age, 0)][p] for p, age in zip(rows, ages, strict=True)])
        log_mu_PA, log_pi_PA = (
            x_PA - np.log(np.exp(x_PA).sum(-1, keepdims=True)) for x_PA in (old_PA, past[-1])
        )
        mu_PA, pi_PA = np.exp(log_mu_PA), np.exp(log_pi_PA)
        adv_PA = REWARD - (mu_PA @ REWARD)[:, None]
        log_mu, log_pi, adv = (torch.from_numpy(x_PA)[..., None] for x_PA in (log_mu_PA, log_pi_PA, adv_PA))
        batch = Batch(log_mu, adv, mask_PA1, torch.from_numpy(reward_PA), mask_PA1[..., 0].long())
        pushed_PA = mu_PA * effective_weights("reinforce", log_pi, batch)[..., 0].numpy()
        past.append(past[-1] + rate * (pushed_PA - pi_PA * pushed_PA.sum(-1, keepdims=True)))
    law_TPA = np.exp(np.array(past[:: steps // points]))
    value_PT: NDArray[np.float64] = ((law_TPA @ REWARD) / law_TPA.sum(-1)).T
    return value_PT
