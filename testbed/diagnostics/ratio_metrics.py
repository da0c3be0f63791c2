"""Metrics of a batch of importance ratios: ESS by name, KL estimators, chi2, quantiles, clip share.

All functions take leading axes and a mask, work in log space and form only the ratios they need.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.diagnostics.metric_names import CLAMP, HISTOGRAM_EDGES, QUANTILES
from testbed.errors import unknown
from testbed.losses.ratios import log_token

HOW = ("kish", "perplexity", "max")
FAR = 1e4
"""Log-ratio beyond which a ratio is 0 or infinite in every type."""


def ess(log_w_N: Tensor, mask_N: Tensor | None = None, how: str = "kish") -> Tensor:
    """Return the effective sample size as a share of N, over the last axis.

    kish: (sum w)^2 / (N sum w^2); perplexity: exp(-sum p log p) / N with p = w / sum w; max:
    sum w / (N max w). For every weight vector max <= kish <= perplexity <= 1, and none is below 1/N, however
    few samples dominate. Scale-invariant in w.

    Args:
        log_w_N: log-weights [..., N].
        mask_N: bool [..., N]; N counts the True ones.
        how: kish, perplexity or max.

    Returns:
        The share [...], from 1/N to 1, in float32 at least. NaN where no weight is positive or one is
        infinite.

    Raises UserError for an unknown name.
    """
    if how not in HOW:
        raise unknown("ESS", how, HOW)
    log_w_N = _precise(log_w_N)
    mask = torch.ones_like(log_w_N, dtype=torch.bool) if mask_N is None else mask_N
    count = mask.sum(-1).clamp(min=1)
    log_p = log_w_N.masked_fill(~mask, -torch.inf)
    # Subtract the largest first, so that large logarithms lose no digits.
    log_p = log_p - log_p.amax(-1, keepdim=True)
    log_p = log_p - log_p.logsumexp(-1, keepdim=True)
    if how == "kish":
        return torch.exp(-torch.logsumexp(2 * log_p, -1)) / count
    if how == "max":
        return torch.exp(-log_p.max(-1).values) / count
    terms = torch.where(log_p == -torch.inf, torch.zeros_like(log_p), log_p.exp() * log_p)
    return torch.exp(-terms.sum(-1)) / count


def _precise(value: Tensor) -> Tensor:
    """Return numbers of two bytes, which lose a tenth of an ESS by rounding, and whole numbers in float32."""
    return value.to(torch.promote_types(value.dtype, torch.float32))


def ess_family(log_rho_BT: Tensor, mask_BT: Tensor) -> dict[str, Tensor]:
    """Return every named ESS and the floors; log_rho_BT is 0 outside the mask.

    Non-finite tokens are skipped. A prefix or sequence with a token of log-ratio -inf has weight 0 and
    counts; one with a token of NaN or +inf does not count.
    """
    log_prefix_BT = log_rho_BT.cumsum(-1)
    weights = {
        "token": (log_rho_BT.flatten(-2), (mask_BT & torch.isfinite(log_rho_BT)).flatten(-2)),
        "prefix": (log_prefix_BT.flatten(-2), (mask_BT & (log_prefix_BT < torch.inf)).flatten(-2)),
        "sequence": sequence_weights(log_rho_BT, mask_BT),
    }
    rows: dict[str, Tensor] = {}
    for level, (log_w, mask) in weights.items():
        rows |= ess_at(level, log_w, mask)
    rows["rollout_corr/ess_floor"] = 1.0 / weights["sequence"][1].sum(-1)
    rows["rollout_corr/ess_floor_token"] = 1.0 / weights["token"][1].sum(-1)
    return rows


def ess_at(level: str, log_w_N: Tensor, mask_N: Tensor) -> dict[str, Tensor]:
    """Every named ESS of log-weights [..., N] at one level: token, prefix or sequence."""
    bound = float(torch.tensor(CLAMP).log())
    rows: dict[str, Tensor] = {}
    for how in HOW:
        rows[f"rollout_corr/ess_{how}_{level}_raw"] = ess(log_w_N, mask_N, how)
        rows[f"rollout_corr/ess_{how}_{level}_clamped"] = ess(log_w_N.clamp(max=bound), mask_N, how)
    return rows


def sequence_weights(log_rho_BT: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
    """log W [..., B], and a mask of sequences with tokens, none of them NaN or +inf."""
    log_w_B = log_rho_BT.sum(-1)
    return log_w_B, mask_BT.any(-1) & (log_w_B < torch.inf)


def masked_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over tokens under the mask; [...]."""
    return torch.where(mask_BT, value_BT, torch.zeros_like(value_BT)).sum((-2, -1)) / mask_BT.sum((-2, -1))


def kl_estimates(log_rho_BT: Tensor, mask_BT: Tensor) -> dict[str, Tensor]:
    """Estimate KL(mu, pi), and by importance weights KL(pi, mu), per token of mu, in nats.

    KL(mu, pi): k1 = -log rho, k2 = (log rho)^2 / 2, k3 = rho - 1 - log rho. KL(pi, mu): rho log rho,
    rho (log rho)^2 / 2, rho log rho - rho + 1. k1 and k3 are unbiased, k2 is not; k2 and k3 are
    never negative, even under rounding, and inf where rho overflows; at rho = 0 all six have their limits.
    Source: Schulman (2020), Approximating KL Divergence.

    Args:
        log_rho_BT: log pi/mu of every token [..., B, T].
        mask_BT: bool, the same shape.

    Returns:
        Six estimates by name, each [...], in float32 at least.
    """
    terms = _kl_terms(_precise(log_rho_BT))
    return {f"rollout_corr/kl_{name}": masked_mean(term, mask_BT) for name, term in terms}


def _kl_terms(log_rho_BT: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield one term at a time: two terms of a long log may not fit into memory."""
    rho_BT = log_rho_BT.exp()
    # Below -FAR rho is 0 already, so that this only makes 0 * -inf 0.
    log_BT = log_rho_BT.clamp(min=-FAR)
    yield "mu_pi_k1", -log_rho_BT
    yield "mu_pi_k2", 0.5 * log_rho_BT**2
    yield "mu_pi_k3", _excess(log_rho_BT)
    yield "pi_mu_k1", rho_BT * log_BT
    yield "pi_mu_k2", 0.5 * rho_BT * log_BT**2
    # rho (log rho - 1) + 1 for small rho, where exp(-log rho) would overflow.
    small_BT = rho_BT * (log_BT - 1) + 1
    yield "pi_mu_k3", torch.where(log_rho_BT < -0.5, small_BT, rho_BT * _excess(-log_rho_BT))


def _excess(x: Tensor) -> Tensor:
    """exp(x) - 1 - x without cancellation: by its series x^2/2 (1 + x/3 (1 + x/4 (1 + ...))) below 1/2."""
    near = x.clamp(-0.5, 0.5)
    series = torch.ones_like(x)
    for k in range(14, 2, -1):
        series = 1 + near / k * series
    return torch.where(x.abs() < 0.5, 0.5 * near.square() * series, x.expm1() - x.clamp(max=FAR))


def quantiles(log_rho_BT: Tensor, mask_BT: Tensor) -> dict[str, Tensor]:
    """p50, p90, p99 and p999 of log token and log sequence ratios (nearest rank from above).

    Over finite tokens, and over sequences with a weight, 0 included.
    """
    finite_BT = mask_BT & torch.isfinite(log_rho_BT)
    tokens = quantiles_at("token", log_rho_BT.flatten(-2), finite_BT.flatten(-2))
    return {**tokens, **quantiles_at("sequence", *sequence_weights(log_rho_BT, mask_BT))}


def quantiles_at(level: str, value_N: Tensor, mask_N: Tensor) -> dict[str, Tensor]:
    """The same quantiles of log-ratios [..., N] at one level: token or sequence."""
    # What the mask leaves out sorts behind every rank that is read.
    ordered = value_N.masked_fill(~mask_N, torch.inf).sort(-1).values
    count = mask_N.sum(-1, keepdim=True)
    rows = {}
    for label, q in QUANTILES.items():
        rank = (torch.ceil(q * count) - 1).long().clamp(min=0)
        rows[f"rollout_corr/log_rho_{level}_{label}"] = ordered.gather(-1, rank).squeeze(-1)
    return rows


def ratio_metrics(logp_BT: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Return all metrics of the ratios pi/mu: ESS, KL, chi2, quantiles, count of non-finite tokens.

    Tokens with a non-finite log-ratio are counted and left out of token metrics. Their sequences, and
    prefixes that contain them, have weight 0 if pi = 0; otherwise they are left out.

    Args:
        logp_BT: log-probabilities [..., B, T] of the target policy, nats.
        batch: the data; only logp_mu_BT and mask_BT are read.

    Returns:
        Metrics by the names of docs/metrics.md, each [...]. If no sample is left: NaN, but inf for floors
        and quantiles.
    """
    raw_BT = log_token(logp_BT.detach(), batch)
    finite_BT = torch.isfinite(raw_BT)
    mask_BT = batch.mask_BT & finite_BT
    log_rho_BT = torch.where(mask_BT, raw_BT, torch.zeros_like(raw_BT))
    log_w_B, weighs_B = sequence_weights(raw_BT, batch.mask_BT)
    chi2_B = torch.where(weighs_B, torch.expm1(2 * log_w_B), torch.zeros_like(log_w_B))
    return {
        **ess_family(raw_BT, batch.mask_BT),
        **kl_estimates(log_rho_BT, mask_BT),
        **quantiles(raw_BT, batch.mask_BT),
        "rollout_corr/chi2_token": masked_mean(torch.expm1(2 * log_rho_BT), mask_BT),
        "rollout_corr/chi2_sequence": chi2_B.sum(-1) / weighs_B.sum(-1),
        "rollout_corr/nonfinite": (~finite_BT).sum((-2, -1)).to(log_rho_BT.dtype),
    }


def clip_share(weight_BT: Tensor, batch: Batch) -> Tensor:
    """Share of tokens with an advantage and effective weight 0; [...]."""
    carries_BT = batch.mask_BT & (batch.adv_BT != 0)
    cut_BT = carries_BT & (weight_BT == 0)
    return cut_BT.sum((-2, -1)) / carries_BT.sum((-2, -1)).clamp(min=1)


def log_ratio_histogram(log_w_B: Tensor) -> Tensor:
    """Counts of log sequence ratios over HISTOGRAM_EDGES with open outer bins; int64 [..., 130]."""
    edges = torch.as_tensor(HISTOGRAM_EDGES, dtype=log_w_B.dtype, device=log_w_B.device)
    bins = len(HISTOGRAM_EDGES) + 1
    # bucketize warns about tensors that are not contiguous.
    index = torch.bucketize(log_w_B.contiguous(), edges, right=True)
    counts = torch.zeros(*log_w_B.shape[:-1], bins, dtype=torch.int64, device=log_w_B.device)
    return counts.scatter_add_(-1, index, torch.ones_like(index))
