"""What a log says of its ratios: ESS by name, tails, KL, ages, mismatch against staleness, step by step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from testbed.diagnostics.ratios import ess_family, kl_estimates, masked_mean, quantiles, sequence_weights
from testbed.diagnostics.tails import Estimated, Flat, ParetoK, pareto_k
from testbed.errors import UserError
from testbed.logs.arrays import Tokens, tensors
from testbed.logs.record import Log

Numbers = dict[str, float]
CLAMP = 2.0


def ratio_numbers(tokens: Tokens) -> Numbers:
    """Return the metrics of testbed.diagnostics for one batch of log-ratios, and three that only peers have.

    Beside those of `ratio_metrics`: rollout_is_mean, the mean of token ratios bounded above by 2 (verl), and
    token_mult_prob_error, the mean of exp |log rho| (NeMo-RL). Tokens that are not finite are left out of
    token metrics and counted.
    """
    raw_BT = tokens.log_rho_BT
    mask_BT = tokens.mask_BT & torch.isfinite(raw_BT)
    log_rho_BT = torch.where(mask_BT, raw_BT, 0.0)
    log_w_B, weighs_B = sequence_weights(raw_BT, tokens.mask_BT)
    chi2_B = torch.where(weighs_B, torch.expm1(2 * log_w_B), 0.0)
    values = {
        **ess_family(raw_BT, tokens.mask_BT),
        **kl_estimates(log_rho_BT, mask_BT),
        **quantiles(raw_BT, tokens.mask_BT),
        "rollout_corr/chi2_token": masked_mean(torch.expm1(2 * log_rho_BT), mask_BT),
        "rollout_corr/chi2_sequence": chi2_B.sum() / weighs_B.sum(),
        "rollout_corr/rollout_is_mean": masked_mean(log_rho_BT.exp().clamp(max=CLAMP), mask_BT),
        "token_mult_prob_error": masked_mean(log_rho_BT.abs().exp(), mask_BT),
        "rollout_corr/nonfinite": (tokens.mask_BT & ~torch.isfinite(raw_BT)).sum(),
        "sequences": torch.tensor(float(len(raw_BT))),
        "tokens": tokens.mask_BT.sum(),
    }
    return {name: float(value) for name, value in values.items()}


def tails(tokens: Tokens) -> dict[str, dict[str, Any]]:
    """Return what Pareto-k says of token, prefix and sequence ratios, or why it says nothing."""
    raw_BT = tokens.log_rho_BT
    log_w_B, weighs_B = sequence_weights(raw_BT, tokens.mask_BT)
    prefix_BT = raw_BT.cumsum(-1)
    levels = {
        "token": raw_BT[tokens.mask_BT & torch.isfinite(raw_BT)],
        "prefix": prefix_BT[tokens.mask_BT & (prefix_BT < torch.inf)],
        "sequence": log_w_B[weighs_B],
    }
    return {level: _tail(log_w) for level, log_w in levels.items()}


def _tail(log_w_N: Tensor) -> dict[str, Any]:
    try:
        found: ParetoK = pareto_k(log_w_N.numpy())
    except UserError as error:
        return {"outcome": "undefined", "says": str(error)}
    if isinstance(found, Flat):
        return {
            "outcome": "flat",
            "n": found.n,
            "says": "the largest weights are equal up to rounding: no tail",
        }
    if not isinstance(found, Estimated):
        return {
            "outcome": "too few",
            "n": found.n,
            "says": f"{found.distinct} distinct weights above the cutoff, {found.needed} are needed",
        }
    kind = "at most" if found.reliable else "above"
    moments = "no mean" if found.k >= 1 else "infinite variance" if found.k >= 0.5 else "finite variance"
    return {
        "outcome": "estimated",
        "n": found.n,
        "k": found.k,
        "threshold": found.threshold,
        "reliable": found.reliable,
        "required": found.required,
        "says": f"{kind} min(1 - 1/log10 n, 0.7) = {found.threshold:.2f}; a law of this k has {moments}",
    }


def by_step(log: Log) -> list[Numbers]:
    """Return the numbers of every step's batch, ascending; reward and length beside them."""
    rows = []
    for step in log.steps:
        batch = log.at(step)
        rewards = [one.reward for one in batch.sequences if one.reward is not None]
        row = {"step": float(step), **ratio_numbers(tensors(batch))}
        row["reward/mean"] = sum(rewards) / len(rewards) if rewards else math.nan
        row["response_length/mean"] = sum(one.length for one in batch.sequences) / len(batch.sequences)
        rows.append(row)
    return rows


def age_rows(tokens: Tokens) -> list[Numbers]:
    """Return per age in versions how many tokens have it, and KL and token ESS of those alone."""
    if tokens.age_BT is None:
        return []
    raw_BT, rows = tokens.log_rho_BT, []
    finite_BT = tokens.mask_BT & torch.isfinite(raw_BT)
    for age in torch.unique(tokens.age_BT[finite_BT]).tolist():
        at_BT = finite_BT & (tokens.age_BT == age)
        log_rho_BT = torch.where(at_BT, raw_BT, 0.0)
        kl = kl_estimates(log_rho_BT, at_BT)
        ess = ess_family(log_rho_BT, at_BT)
        rows.append(
            {
                "age": age,
                "tokens": float(at_BT.sum()),
                "kl_mu_pi_k1": float(kl["rollout_corr/kl_mu_pi_k1"]),
                "kl_mu_pi_k2": float(kl["rollout_corr/kl_mu_pi_k2"]),
                "kl_mu_pi_k3": float(kl["rollout_corr/kl_mu_pi_k3"]),
                "ess_kish_token": float(ess["rollout_corr/ess_kish_token_raw"]),
            }
        )
    return rows


def split(tokens: Tokens) -> Numbers:
    """Return log rho = log anchor/mu + log pi/anchor in two parts: means, halves of mean squares, cross.

    k1: -mean log rho = mismatch + staleness, to the digit. k2: mean (log rho)^2 / 2 = mismatch + staleness +
    cross. Where the anchor has the sampler's weights, the first part is the engines' mismatch alone and the
    second staleness alone; an anchor of the trainer's newest weights leaves staleness in the first. Own
    derivation.
    """
    if tokens.log_anchor_BT is None:
        return {}
    mismatch_BT, moved_BT = tokens.log_anchor_BT - tokens.log_mu_BT, tokens.log_pi_BT - tokens.log_anchor_BT
    mask_BT = tokens.mask_BT & torch.isfinite(mismatch_BT) & torch.isfinite(moved_BT)
    if not bool(mask_BT.any()):
        return {}
    d_BT, s_BT = torch.where(mask_BT, mismatch_BT, 0.0), torch.where(mask_BT, moved_BT, 0.0)
    return {
        "tokens": float(mask_BT.sum()),
        "k1": float(masked_mean(-(d_BT + s_BT), mask_BT)),
        "k1_mismatch": float(masked_mean(-d_BT, mask_BT)),
        "k1_staleness": float(masked_mean(-s_BT, mask_BT)),
        "k2": float(masked_mean((d_BT + s_BT) ** 2 / 2, mask_BT)),
        "k2_mismatch": float(masked_mean(d_BT**2 / 2, mask_BT)),
        "k2_staleness": float(masked_mean(s_BT**2 / 2, mask_BT)),
        "k2_cross": float(masked_mean(d_BT * s_BT, mask_BT)),
    }
