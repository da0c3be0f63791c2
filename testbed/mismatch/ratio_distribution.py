"""Distribution of the log-mismatch d = log pi - log mu, exact or from samples of mu. No torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Bools, Floats, Ints
from testbed.errors import UserError

if TYPE_CHECKING:
    from envs.tokens.token_tree import TokenTree

LEVELS = (0.01, 0.1, 0.5, 0.9, 0.99)


@dataclass(frozen=True)
class RatioDistribution:
    """Moments of the log-mismatch under mu, per token (pooled) and per sequence (summed over its tokens).

    mean, std and quantiles (at LEVELS, lower ones) of d; nats. kl_mu_pi = -E_mu d. kl_pi_mu_token =
    E_mu-tokens rho d: the divergence of next-token distributions at states that mu visits; kl_pi_mu = E_mu w
    log w. Both are inf if the distribution is exact and mu misses tokens of pi; samples of mu cannot show
    that. ess_kish, ess_perplexity, ess_max: limits of the sampled shares, (E w)^2 / E w^2, E w exp(-E[w log
    w] / E w) and E w / max w, over the support of mu; for samples, the shares themselves. mass: E_mu w, the
    mass of pi on mu's support; 1 under full support. length: mean tokens. n: responses. exact: enumerated.
    """

    mean_token: float
    std_token: float
    quantiles_token: Floats
    kl_mu_pi_token: float
    kl_pi_mu_token: float
    mean: float
    std: float
    quantiles: Floats
    kl_mu_pi: float
    kl_pi_mu: float
    ess_kish: float
    ess_perplexity: float
    ess_max: float
    mass: float
    length: float
    n: int
    exact: bool


def enumerated_distribution(
    log_pi_LT: ArrayLike, log_mu_LT: ArrayLike, mask_LT: ArrayLike, prompts: int = 1
) -> RatioDistribution:
    """Return the exact distribution from every response L to each of `prompts` equally likely prompts.

    log_pi_LT, log_mu_LT: log-probabilities per token, -inf for probability 0; read only under the mask.

    Raises UserError if the probabilities of the responses under pi or mu do not sum to 1 per prompt.
    """
    log_pi_LT, log_mu_LT, mask_LT = _arrays(log_pi_LT, log_mu_LT, mask_LT)
    pi_L, mu_L = (np.exp(log_p_LT.sum(-1)) / prompts for log_p_LT in (log_pi_LT, log_mu_LT))
    for name, p_L in (("pi", pi_L), ("mu", mu_L)):
        if abs(p_L.sum() - 1) > 1e-4:
            raise UserError(f"responses have probability {p_L.sum():.6g} under {name}; give every one, once.")
    missed = bool((pi_L[mu_L == 0] > 0).any())
    seen = mu_L > 0
    return _summary(log_pi_LT[seen], log_mu_LT[seen], mask_LT[seen], mu_L[seen], missed=missed, exact=True)


def sampled_distribution(log_pi_BT: ArrayLike, log_mu_BT: ArrayLike, mask_BT: ArrayLike) -> RatioDistribution:
    """Return the distribution of sequences drawn from mu, each counted once.

    Divergences from pi to mu and the ESS are importance-weighted and as noisy as the weights. Tokens with mu
    = 0 are invisible here.

    Raises UserError without sequences, and for a non-finite log-probability under the mask.
    """
    log_pi_BT, log_mu_BT, mask_BT = _arrays(log_pi_BT, log_mu_BT, mask_BT)
    bad = int((~np.isfinite(log_mu_BT) | np.isnan(log_pi_BT)).sum())
    if not len(log_mu_BT) or bad:
        raise UserError(
            f"{len(log_mu_BT)} sequences with {bad} log mu that are not finite; samples of mu have none."
        )
    weight_B = np.full(len(log_mu_BT), 1.0 / len(log_mu_BT))
    return _summary(log_pi_BT, log_mu_BT, mask_BT, weight_B, missed=False, exact=False)


def tree_distribution(tree: "TokenTree", log_pi_SA: ArrayLike, log_mu_SA: ArrayLike) -> RatioDistribution:
    """Return the exact distribution on a token tree, from the log-probabilities of its states."""
    state_LT, token_LT, mask_LT = tree_responses(tree)
    log_pi, log_mu = (
        np.asarray(table, dtype=np.float64)[state_LT, token_LT] for table in (log_pi_SA, log_mu_SA)
    )
    return enumerated_distribution(log_pi, log_mu, mask_LT, len(tree.prompt_NQ))


def tree_responses(tree: "TokenTree") -> tuple[Ints, Ints, Bools]:
    """Return state, token and mask of every response to every prompt, [L, T], prompt by prompt."""
    token_LT, mask_LT = tree.task.enumerate()
    branch_V = np.full(tree.actions, 0)
    branch_V[tree.going] = np.arange(tree.going.size)
    node_LT = np.zeros_like(token_LT)
    for t in range(tree.horizon - 1):
        below_L = node_LT[:, t] * tree.going.size + 1 + branch_V[token_LT[:, t]]
        node_LT[:, t + 1] = np.where(mask_LT[:, t + 1], below_L, 0)
    N = len(tree.prompt_NQ)
    root_N = np.arange(N) * tree.nodes
    state_LT = (root_N[:, None, None] + node_LT).reshape(-1, tree.horizon)
    return state_LT, np.tile(token_LT, (N, 1)), np.tile(mask_LT, (N, 1))


def _arrays(log_pi: ArrayLike, log_mu: ArrayLike, mask: ArrayLike) -> tuple[Floats, Floats, Bools]:
    mask_LT = np.asarray(mask, dtype=bool)
    pair = [np.asarray(log_p, dtype=np.float64) for log_p in (log_pi, log_mu)]
    if any(log_p.shape != mask_LT.shape or log_p.ndim != 2 for log_p in pair):
        raise UserError(
            f"shapes are {pair[0].shape}, {pair[1].shape} and {mask_LT.shape}; expected one [L, T]."
        )
    return np.where(mask_LT, pair[0], 0.0), np.where(mask_LT, pair[1], 0.0), mask_LT


def _summary(
    log_pi_LT: Floats, log_mu_LT: Floats, mask_LT: Bools, p_L: Floats, *, missed: bool, exact: bool
) -> RatioDistribution:
    d_LT = log_pi_LT - log_mu_LT
    d_L = d_LT.sum(-1)
    length = float(p_L @ mask_LT.sum(-1))
    p_LT = np.where(mask_LT, p_L[:, None], 0.0) / length
    mean_token, std_token = _moments(d_LT.ravel(), p_LT.ravel())
    mean, std = _moments(d_L, p_L)
    w_L, rho_LT = np.exp(d_L), np.exp(d_LT)
    mass, largest = float(p_L @ w_L), float(w_L.max())
    w_log_w = float(p_L @ _times_log(w_L, d_L))
    return RatioDistribution(
        mean_token=mean_token, std_token=std_token,
        quantiles_token=_quantiles(d_LT[mask_LT], p_LT[mask_LT]), kl_mu_pi_token=-mean_token,
        kl_pi_mu_token=np.inf if missed else float((p_LT * _times_log(rho_LT, d_LT)).sum()), mean=mean,
        std=std, quantiles=_quantiles(d_L, p_L), kl_mu_pi=-mean, kl_pi_mu=np.inf if missed else w_log_w,
        ess_kish=float(mass**2 / (p_L @ w_L**2)), ess_perplexity=float(mass * np.exp(-w_log_w / mass)),
        ess_max=float(mass / largest), mass=mass, length=length, n=len(p_L), exact=exact,
    )  # fmt: skip


def _times_log(rho: Floats, log_rho: Floats) -> Floats:
    """rho log rho, 0 at rho = 0."""
    product: Floats = rho * np.where(rho > 0, log_rho, 0.0)
    return product


def _moments(x_N: Floats, p_N: Floats) -> tuple[float, float]:
    """Mean and standard deviation under p; -inf and nan if x is -inf with mass."""
    with np.errstate(invalid="ignore"):
        terms_N = np.where(p_N > 0, p_N * x_N, 0.0)
        mean = float(terms_N.sum())
        square_N = np.where(p_N > 0, p_N * (x_N - mean) ** 2, 0.0)
    return mean, float(np.sqrt(square_N.sum()))


def _quantiles(x_N: Floats, p_N: Floats) -> Floats:
    """Return the smallest x with cumulative mass of at least each level."""
    order = np.argsort(x_N, kind="stable")
    cumulative = np.cumsum(p_N[order])
    index = np.searchsorted(cumulative, np.array(LEVELS) * cumulative[-1] * (1 - 1e-12))
    found: Floats = x_N[order][np.minimum(index, len(x_N) - 1)]
    return found
