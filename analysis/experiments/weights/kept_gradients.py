"""Which tokens still teach once the policy has moved: M2PO's budget, R2VPO's variance."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from analysis.lab import Evidence, Experiment, Part, exact
from envs.arrays import Floats

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch

TAU, LAM, EPS = 0.04, 0.04, 0.2
BATCHES, TOKENS = 200, 8
"""Random batches whose subsets of tokens are all enumerated."""

EXPERIMENT = Experiment(
    "kept-gradients",
    question="Which tokens still teach once the policy has moved away from the sampler?",
    source="Zheng et al. (2025), arXiv:2510.01161, Algorithm 1; R2VPO (2026), arXiv:2601.03320",
    systems={
        "M2PO (Prosperity before Collapse)": Part(
            "which tokens its budget drops", claims=("m2po-drops-as-few-tokens-as-its-budget-allows",)
        ),
        "R²VPO": Part(
            "which tokens keep a gradient", claims=("r2vpo-has-a-gradient-wherever-the-clip-has-none",)
        ),
    },
)


def _batch(log_rho_N: Floats, adv_N: Floats) -> tuple[Batch, Tensor]:
    """Return a batch of one sequence with these token ratios and advantages, and log-probabilities of pi."""
    import torch

    from testbed.data.batch import Batch

    adv_1N = torch.from_numpy(np.array(adv_N, dtype=np.float64))[None]
    mu_1N = torch.full_like(adv_1N, -1.0)
    one = torch.ones(1, dtype=torch.float64)
    batch = Batch(mu_1N, adv_1N, torch.ones_like(adv_1N, dtype=torch.bool), one, 0 * one.long())
    return batch, mu_1N + torch.from_numpy(np.array(log_rho_N, dtype=np.float64))[None]


@EXPERIMENT.claim(
    source="Zheng et al. (2025), arXiv:2510.01161, Algorithm 1; that no other choice drops fewer is derived"
)
def m2po_drops_as_few_tokens_as_its_budget_allows() -> Evidence:
    """Of all subsets of the tokens moved with their advantage whose mean squared log-ratio is at most tau,
    M2PO keeps one of the largest.
    """
    from testbed.objectives.clipped.m2po import harmful, trust_region_keep

    gaps: list[float] = []
    rng, dropped = np.random.default_rng(0), 0
    for _ in range(BATCHES):
        log_rho_N, adv_N = rng.normal(0, 0.3, TOKENS), rng.choice([-1.0, 1.0], TOKENS)
        batch, logp = _batch(log_rho_N, adv_N)
        bad_N = harmful(logp - batch.logp_mu_BT, batch)[0].numpy()
        kept_N = bad_N & trust_region_keep(logp, batch, tau=TAU)[0].numpy()
        square_M = log_rho_N[bad_N] ** 2
        fits = [
            len(subset)
            for size in range(square_M.size + 1)
            for subset in itertools.combinations(square_M, size)
            if size == 0 or np.mean(subset) <= TAU
        ]
        gaps.append(abs(max(fits) - int(kept_N.sum())))
        if kept_N.any():
            gaps.append(max(0.0, float(np.mean(log_rho_N[kept_N] ** 2)) - TAU))
        dropped += int(bad_N.sum() - kept_N.sum())
    return exact(
        gaps, 1e-12, f"tokens more than in the largest subset, or excess over tau; {dropped} dropped"
    )


@EXPERIMENT.claim(source="R2VPO (2026), arXiv:2601.03320; the weight is derived from the loss")
def r2vpo_has_a_gradient_wherever_the_clip_has_none() -> Evidence:
    """The weight of grad log pi under R2VPO is r (A - 2 lam (r - 1)): at every ratio where PPO's clip of 0.2
    gives none it is not 0, it has the sign of A up to r = 1 + A / (2 lam), and pulls back beyond.
    """
    from testbed.inspection.effective_weights import effective_weights

    r_K = np.concatenate([np.linspace(0.05, 0.75, 15), np.linspace(1.25, 30.0, 40)])
    gaps, silent = [], 0
    for adv in (-1.0, 1.0):
        batch, logp = _batch(np.log(r_K), np.full(r_K.size, adv))
        clip_K = effective_weights("ppo_clip", logp, batch, eps_low=EPS, eps_high=EPS)[0].numpy()
        ours_K = effective_weights("r2vpo", logp, batch, lam=LAM)[0].numpy()
        gaps += list(np.abs(ours_K - r_K * (adv - 2 * LAM * (r_K - 1))))
        silent_K = clip_K == 0
        silent += int(silent_K.sum())
        turned_K = r_K > 1 + adv / (2 * LAM) if adv > 0 else np.zeros(r_K.size, dtype=bool)
        sign_K = np.where(turned_K, -adv, adv)
        gaps += list(np.where(silent_K & (np.sign(ours_K) != sign_K), 1.0, 0.0))
    return exact(gaps, 1e-9, f"distance from r (A - 2 lam (r - 1)), or 1 for a sign; {silent} clipped ratios")
