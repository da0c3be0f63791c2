"""Measure the ratios in a log, step by step: ESS, tails, KL, ages, mismatch against staleness."""

import math
from typing import Any

import torch
from torch import Tensor

from testbed.diagnostics.metric_names import CLAMP
from testbed.diagnostics.ratio_metrics import ess, ess_at, kl_estimates, quantiles_at
from testbed.diagnostics.tail_indices import Estimated, Flat, ParetoK, pareto_k
from testbed.errors import UserError
from testbed.logs.log_tensors import Tokens, tensors
from testbed.logs.record import Log

Numbers = dict[str, float]
LEVELS = ("token", "prefix", "sequence")
CHUNK = 2**17
"""Number of tokens per chunk of terms."""


def ratio_numbers(tokens: Tokens) -> Numbers:
    """Return the metrics of testbed.diagnostics for one batch of log-ratios, and some of other stacks.

    Besides those of `ratio_metrics`: rollout_is_mean, the mean of token ratios capped at 2 (verl), and
    token_mult_prob_error, the mean of exp |log rho| (NeMo-RL). Token metrics omit and count tokens that are
    not finite.
    """
    values: dict[str, Tensor] = {}
    for level in LEVELS:  # one at a time: two terms of a long log may not fit into memory
        log_w_N, counts_N = tokens.level(level)
        values |= ess_at(level, log_w_N, counts_N)
        if level == "token":
            values |= _token_means(log_w_N[counts_N])
            values["rollout_corr/ess_floor_token"] = 1.0 / counts_N.sum()
            values["rollout_corr/nonfinite"] = (tokens.mask_N & ~counts_N).sum()
        if level != "prefix":
            values |= quantiles_at(level, log_w_N, counts_N)
    values["rollout_corr/ess_floor"] = 1.0 / counts_N.sum()
    values["rollout_corr/chi2_sequence"] = torch.expm1(2 * log_w_N[counts_N]).mean()
    values["sequences"] = torch.tensor(float(len(log_w_N)))
    values["tokens"] = tokens.mask_N.sum()
    return {name: float(value) for name, value in values.items()}


def _token_means(log_rho_N: Tensor) -> dict[str, Tensor]:
    """Return means over finite log-ratios, in chunks of CHUNK tokens to save memory."""
    found: dict[str, Tensor] = {}
    for part in log_rho_N.split(CHUNK):
        means = {
            **kl_estimates(part[None], torch.ones_like(part, dtype=torch.bool)[None]),
            "rollout_corr/chi2_token": torch.expm1(2 * part).mean(),
            "rollout_corr/rollout_is_mean": part.exp().clamp(max=CLAMP).mean(),
            "token_mult_prob_error": part.abs().exp().mean(),
        }
        share = len(part) / max(len(log_rho_N), 1)
        found = {name: found.get(name, 0.0) + value * share for name, value in means.items()}
    return found


def tails(tokens: Tokens) -> dict[str, dict[str, Any]]:
    """Return Pareto-k of token, prefix and sequence ratios, or the reason why it is undefined."""
    found = {}
    for level in LEVELS:
        log_w_N, counts_N = tokens.level(level)
        found[level] = _tail(log_w_N[counts_N])
    return found


def _tail(log_w_N: Tensor) -> dict[str, Any]:
    try:
        found: ParetoK = pareto_k(log_w_N.numpy())
    except UserError as error:
        return {"outcome": "undefined", "says": str(error)}
    if isinstance(found, Flat):
        says = "the largest weights are equal up to rounding: no tail"
        return {"outcome": "flat", "n": found.n, "says": says}
    if not isinstance(found, Estimated):
        says = f"{found.distinct} distinct weights above the cutoff, {found.needed} are needed"
        return {"outcome": "too few", "n": found.n, "says": says}
    kind = "at most" if found.reliable else "above"
    moments = "no mean" if found.k >= 1 else "infinite variance" if found.k >= 0.5 else "finite variance"
    return {
        "outcome": "estimated",
        "n": found.n,
        "k": found.k,
        "threshold": found.threshold,
        "reliable": found.reliable,
        "required": found.required,
        "says": (
            f"{kind} min(1 - 1/log10 n, 0.7) = {found.threshold:.2f}; a distribution with this k has "
            f"{moments}"
        ),
    }


def by_step(log: Log) -> list[Numbers]:
    """Return the numbers of every step's batch, ascending, with reward and length."""
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
    """Return, per age in versions, the number of tokens, and their KL and token ESS."""
    if tokens.age_N is None:
        return []
    raw_N, rows = tokens.log_rho_N, []
    finite_N = tokens.mask_N & torch.isfinite(raw_N)
    for age in torch.unique(tokens.age_N[finite_N]).tolist():
        log_rho_N = raw_N[finite_N & (tokens.age_N == age)]
        kl = _token_means(log_rho_N)
        numbers = {f"kl_mu_pi_k{i}": float(kl[f"rollout_corr/kl_mu_pi_k{i}"]) for i in (1, 2, 3)}
        count, share = float(len(log_rho_N)), float(ess(log_rho_N))
        rows.append({"age": age, "tokens": count, **numbers, "ess_kish_token": share})
    return rows


def split(tokens: Tokens) -> Numbers:
    """Return the parts of log rho = log anchor/mu + log pi/anchor: means, half mean squares, cross term.

    k1: -mean log rho = mismatch + staleness, exactly. k2: mean (log rho)^2 / 2 = mismatch + staleness +
    cross. If the anchor has the sampler's weights, the first part is engine mismatch alone and the second
    staleness alone; an anchor at the trainer's newest weights leaves staleness in the first. Derived here.
    """
    if tokens.log_anchor_N is None:
        return {}
    d_N, s_N = tokens.log_anchor_N - tokens.log_mu_N, tokens.log_pi_N - tokens.log_anchor_N
    known_N = tokens.mask_N & torch.isfinite(d_N) & torch.isfinite(s_N)
    if not bool(known_N.any()):
        return {}
    d_N, s_N = d_N[known_N], s_N[known_N]
    means = {
        "k1": -(d_N + s_N),
        "k1_mismatch": -d_N,
        "k1_staleness": -s_N,
        "k2": (d_N + s_N) ** 2 / 2,
        "k2_mismatch": d_N**2 / 2,
        "k2_staleness": s_N**2 / 2,
        "k2_cross": d_N * s_N,
    }
    return {"tokens": float(len(d_N)), **{name: float(x_N.mean()) for name, x_N in means.items()}}
