"""Claims about two updates: REINFORCE with a group's mean is one step of a regression, and TOPR's taper."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize, special

from analysis.lab import Evidence, Experiment, exact
from testbed.exact.tree import random_policies, random_tree
from testbed.objectives import objective

if TYPE_CHECKING:
    from testbed.exact.gradient_report import Bench

EXPERIMENT = Experiment(
    "updates",
    question="Is group REINFORCE one step of a regression, and what does TOPR's taper leave of negatives?",
    source="Yao et al. (2025), arXiv:2509.24203; Le Roux et al. (2025), arXiv:2503.14286",
)

CLEARLY = 0.01
"""A relation that must fail has to fail by more than 1%."""
TAPERS = {"sequence": "topr", "token": "topr@trinity", "geometric": "topr@verl"}
"""Registered objectives by the ratio that tapers their negatives."""


@EXPERIMENT.claim(source="Yao et al. (2025), arXiv:2509.24203; the factor by autograd")
def group_reinforce_is_pairwise_consistency() -> Evidence:
    """At the policy it starts from, the gradient of sum_(i<j) (d_i - d_j)^2, d = R - tau log(pi / pi_t), is 2
    tau G times that of -sum (R - mean) log pi, G the group's size, whatever law sampled the group; after a
    step it no longer is.
    """
    from testbed.exact.gradient_report import Bench

    gaps = []
    for seed in range(4):
        tree = random_tree(3, 3, seed)
        bench = Bench(tree, *random_policies(tree, 0.5, seed))
        rng = np.random.default_rng([seed, 3])
        uniform_L = np.full(len(bench.law_L), 1 / len(bench.law_L))
        for law_L in (uniform_L, bench.law_L, bench.leaves.probability(bench.pi_SA)):
            for size, tau in ((2, 1.0), (5, 0.1), (8, 0.7)):
                row_B = rng.choice(len(law_L), size, p=law_L / law_L.sum())
                reward_B = rng.normal(size=size)
                there = _pair_gradients(bench, row_B, reward_B, tau, 0.0)
                gaps += [_apart(found, 2 * tau * size * there[0]) for found in there[1:]]
                later = _pair_gradients(bench, row_B, reward_B, tau, 0.5)
                gaps.append(CLEARLY - _apart(later[1], 2 * tau * size * later[0]))
    return exact(gaps, 1e-10, "relative distance of gradients in the logits, or 1% less it after a step")


def _apart(found_SA: np.ndarray, expected_SA: np.ndarray) -> float:
    return float(np.linalg.norm(found_SA - expected_SA) / np.linalg.norm(expected_SA))


def _pair_gradients(
    bench: Bench, row_B: np.ndarray, reward_B: np.ndarray, tau: float, step: float
) -> list[np.ndarray]:
    """Gradients [S, A] of group REINFORCE, of the sum over pairs, and of the objective `pairwise_opmd`.

    The logits are those of pi_t plus `step` times fixed normal ones. The objective regularizes toward the
    policy of the moment, so it is left out when step > 0.
    """
    import torch

    from testbed.data.batch import Batch

    start_SA = torch.from_numpy(np.log(bench.pi_SA))
    move_SA = torch.from_numpy(np.random.default_rng(0).standard_normal(bench.pi_SA.shape))
    logits_SA = (start_SA + step * move_SA).requires_grad_()
    state_BT, action_BT = (
        torch.from_numpy(x[row_B]) for x in (bench.leaves.state_LT, bench.leaves.action_LT)
    )
    logp_BT = logits_SA.log_softmax(-1)[state_BT, action_BT]
    old_BT, reward = start_SA[state_BT, action_BT], torch.from_numpy(reward_B)
    d_B = reward - tau * (logp_BT - old_BT).sum(-1)
    losses = [
        -((reward - reward.mean()) * logp_BT.sum(-1)).sum(),
        torch.triu((d_B[:, None] - d_B).square(), 1).sum(),
    ]
    if step == 0:
        mu_BT = torch.from_numpy(bench.logp_mu_LT[row_B])
        one_group = torch.zeros(len(row_B), dtype=torch.int64)
        batch = Batch(mu_BT, torch.zeros_like(mu_BT), torch.ones_like(mu_BT).bool(), reward, one_group)
        losses.append(objective["pairwise_opmd"].bind(tau=tau)(logp_BT, batch).sum())
    return [torch.autograd.grad(loss, logits_SA, retain_graph=True)[0].numpy() for loss in losses]


@EXPERIMENT.claim(
    source="Le Roux et al. (2025), arXiv:2503.14286, Eq. 6, and the ratios of two stacks; exact enumeration"
)
def topr_taper_by_sequence_token_and_geometric_ratio() -> Evidence:
    """Where tokens are independent under mu and pi and the ratio says nothing about the reward, TOPR keeps at
    most e^(-cT) of the negatives' mass and falls at that rate, c Chernoff's information; with a token ratio
    it keeps 1 - TV of one token at any length, with the geometric mean it tends to exp(-KL(mu, pi)). Where pi
    moved at m tokens only, length beyond m costs nothing. From (.6, .4) to (.4, .6) the three keep .704, .8
    and .893 at T = 4, .257, .8 and .920 at 32, .0225, .8 and .923 at 128.
    """
    gaps = []
    for mu, pi in ((0.4, 0.6), (0.3, 0.6), (0.5, 0.2)):
        mu_A, pi_A = np.array([1 - mu, mu]), np.array([1 - pi, pi])
        c, apart = chernoff(mu_A, pi_A), float(np.abs(mu_A - pi_A).sum() / 2)
        kl = float(mu_A @ np.log(mu_A / pi_A))
        for length in (4, 32, 128):
            kept = kept_shares(mu_A, pi_A, length)
            gaps += [abs(kept["token"] - (1 - apart)), max(0.0, kept["sequence"] * math.exp(c * length) - 1)]
            partly = kept_shares(mu_A, pi_A, 2 * length, moved=length)
            gaps.append(abs(partly["sequence"] - kept["sequence"]))
        far = [kept_shares(mu_A, pi_A, length) for length in (512, 1024)]
        rate = math.log(far[0]["sequence"] / far[1]["sequence"]) / 512
        # The share is e^(-cT) / sqrt(T) up to a constant.
        gaps.append(max(0.0, abs(rate - c - math.log(2) / 1024) - 1e-2 * c))
        gaps.append(max(0.0, abs(far[1]["geometric"] / math.exp(-kl) - 1) - 1e-3))
    for length, printed in PRINTED.items():
        kept = kept_shares(np.array([0.6, 0.4]), np.array([0.4, 0.6]), length)
        for name, value in zip(TAPERS, printed, strict=True):
            gaps.append(max(0.0, abs(kept[name] - value) - (5e-5 if value < 0.1 else 5e-4)))
    return exact(gaps, 1e-9, "largest distance from a formula or a printed value, or miss of a rate")


PRINTED = {4: (0.704, 0.8, 0.893), 32: (0.257, 0.8, 0.920), 128: (0.0225, 0.8, 0.923)}


def chernoff(mu_A: np.ndarray, pi_A: np.ndarray) -> float:
    """-min over s in [0, 1] of ln sum mu^(1-s) pi^s, nats."""
    log_sum = lambda s: float(np.log(mu_A ** (1 - s) @ pi_A**s))  # noqa: E731
    found = optimize.minimize_scalar(log_sum, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-12})
    return float(-found.fun)


def kept_shares(
    mu_A: np.ndarray, pi_A: np.ndarray, length: int, moved: int | None = None
) -> dict[str, float]:
    """E_mu of the mean weight of a negative's tokens under each of TAPERS, summed over counts of ones.

    pi differs from mu at the first `moved` tokens only, by default at all; the others then cancel.
    """
    import torch

    from testbed.data.batch import Batch
    from testbed.inspection.effective_weights import effective_weights

    m = length if moved is None else moved
    k = np.arange(m + 1)
    choose = special.gammaln(m + 1) - special.gammaln(k + 1) - special.gammaln(m - k + 1)
    law_K = np.exp(choose + k * np.log(mu_A[1]) + (m - k) * np.log(mu_A[0]))
    ones_KT = (np.arange(length) < k[:, None]).astype(np.int64)
    logp_mu = torch.from_numpy(np.log(mu_A)[ones_KT])
    logp_pi = torch.from_numpy(np.where(np.arange(length) < m, np.log(pi_A)[ones_KT], logp_mu.numpy()))
    minus = -torch.ones_like(logp_mu)
    row_K = torch.arange(len(k))
    batch = Batch(logp_mu, minus, minus < 0, minus[:, 0], row_K)
    weights = {name: effective_weights(taper, logp_pi, batch) for name, taper in TAPERS.items()}
    return {name: float(law_K @ -weight.mean(-1).numpy()) for name, weight in weights.items()}
