"""Sums of weights that add over shards, and all statistics that follow from them. Without torch.

A worker reduces its shard to seven numbers; the workers' numbers combine, in any order, to those of the whole
batch. All are relative to the largest weight, stored as a logarithm, so even weights of e^{10^6} lose no
digits.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats
from testbed.errors import UserError, unknown

HOW = ("kish", "kong", "perplexity", "max")

NO_SPREAD = 1e-5
"""Squared coefficient of variation below which a kurtosis from sums has no accurate digits, and is NaN."""


@dataclass(frozen=True)
class WeightSums:
    """Sufficient sums of N weights w >= 0; every field has the shape [...] of the leading axes.

    count: N. log_largest: log of the largest w. first, second, third, fourth: sum of v, v^2, v^3, v^4 with
    v = w / largest w, each between 1 and N. mean_log: sum v log v / sum v, nats. When all w are 0, these sums
    are 0 and log_largest is -inf.
    Valid for any weights, normalized or not; only `kong`, `chi2` and `kish_upper_limit` assume weights of
    mean 1.
    """

    count: Floats
    log_largest: Floats
    first: Floats
    second: Floats
    third: Floats
    fourth: Floats
    mean_log: Floats

    @classmethod
    def of(cls, log_w: ArrayLike, mask: ArrayLike | None = None, upper: float = math.inf) -> "WeightSums":
        """Return the sums over the last axis of log-weights [..., N].

        Args:
            log_w: log-weights; -inf is a weight of 0.
            mask: bool [..., N]; False entries do not count.
            upper: upper bound of the weights ("clamped"), of w, not of log w.

        Raises UserError for NaN or +inf under the mask and for an upper bound that is not positive.
        """
        if not upper > 0:
            raise UserError(f"upper is {upper:g}, expected a positive bound on the weights.")
        log_w = np.asarray(log_w, dtype=np.float64)
        mask = np.broadcast_to(True if mask is None else np.asarray(mask, dtype=bool), log_w.shape)
        wrong = mask & ~(log_w < np.inf)
        if wrong.any():
            raise UserError(
                f"{int(wrong.sum())} of {int(mask.sum())} log-weights are NaN or +inf; expected log(pi/mu) "
                "< inf. mu = 0 where pi > 0, or log-probabilities overflowed: mask these samples and count "
                "them."
            )
        log_w = np.where(mask, np.minimum(log_w, math.log(upper)), -np.inf)
        # An empty axis has no maximum; a weight of 0 in its place changes no sum.
        if log_w.shape[-1] == 0:
            log_w = np.full((*log_w.shape[:-1], 1), -np.inf)
        log_largest = log_w.max(-1)
        # Subtract logarithms before exponentiating, so that large ones lose no digits.
        log_v = log_w - _finite(log_largest)[..., None]
        v = np.exp(log_v)
        first = v.sum(-1)
        return cls(
            count=mask.sum(-1).astype(np.float64),
            log_largest=log_largest,
            first=first,
            second=(v**2).sum(-1),
            third=(v**3).sum(-1),
            fourth=(v**4).sum(-1),
            mean_log=_ratio((v * np.where(v > 0, log_v, 0.0)).sum(-1), first),
        )

    def __add__(self, other: "WeightSums") -> "WeightSums":
        """Return the sums of both shards together."""
        log_largest = np.maximum(self.log_largest, other.log_largest)
        parts = [part._relative_to(log_largest) for part in (self, other)]
        first = parts[0].first + parts[1].first
        return WeightSums(
            parts[0].count + parts[1].count, log_largest, first, parts[0].second + parts[1].second,
            parts[0].third + parts[1].third, parts[0].fourth + parts[1].fourth,
            _ratio(sum(part.first * part.mean_log for part in parts), first),
        )  # fmt: skip

    def _relative_to(self, log_largest: Floats) -> "WeightSums":
        """Return the same sums with v = w / e^log_largest, for a weight at least as large as any here."""
        # A shard of zero weights has shift -inf; its sums would turn mean_log into 0 * -inf = NaN.
        shift = self.log_largest - _finite(log_largest)
        scale = np.exp(shift)
        return WeightSums(
            self.count, log_largest, scale * self.first, scale**2 * self.second, scale**3 * self.third,
            scale**4 * self.fourth, self.mean_log + np.where(scale > 0, shift, 0.0),
        )  # fmt: skip

    def __radd__(self, other: Any) -> "WeightSums":
        """Let sum(shards) start from 0."""
        if isinstance(other, int) and other == 0:
            return self
        return NotImplemented

    def to_array(self) -> Floats:
        """Return the seven fields along a new last axis, for gathering across processes."""
        return np.stack([np.asarray(getattr(self, field.name)) for field in fields(self)], axis=-1)

    @classmethod
    def from_array(cls, array: ArrayLike) -> "WeightSums":
        """Return the sums written by `to_array`; raise UserError for another last axis."""
        array = np.asarray(array, dtype=np.float64)
        if array.ndim == 0 or array.shape[-1] != len(fields(cls)):
            raise UserError(f"The array has shape {array.shape}, expected [..., {len(fields(cls))}].")
        return cls(*np.moveaxis(array, -1, 0))

    def ess(self, how: str = "kish") -> Floats:
        """Return an ESS as a share of N.

        kish: (sum w)^2 / (N sum w^2); perplexity: exp(entropy of w / sum w) / N; max: sum w / (N max w);
        kong: 1 / (1 + Var w), for weights of mean 1 only: it changes with their scale.
        Source: Martino, Elvira & Louzada (2017); kong: Kong (1992).

        Raises UserError for an unknown name, without weights, and if all weights are 0.
        """
        if how not in HOW:
            raise unknown("ESS", how, HOW)
        self._need_weights()
        if how == "kish":
            return self.first**2 / (self.count * self.second)
        if how == "max":
            return self.first / self.count
        if how == "perplexity":
            return self.first * np.exp(-self.mean_log) / self.count
        with np.errstate(over="ignore"):
            # Rounding may turn the variance of equal weights negative: it is cut at 0.
            mean = np.exp(self.log_largest) * self.first / self.count
            return 1.0 / (1.0 + mean**2 * np.maximum(self.count * self.second / self.first**2 - 1.0, 0.0))

    def floor(self) -> Floats:
        """Return 1/N, the lower bound of every sampled kish, perplexity or max share."""
        self._need_weights()
        return 1.0 / self.count

    def max_share(self) -> Floats:
        """Return max w / sum w: the diagnostic of Chatterjee & Diaconis (2018); 1/N at best, 1 at worst."""
        self._need_weights()
        return 1.0 / self.first

    def chi2(self) -> Floats:
        """Return mean w^2 - 1, unbiased for E_mu w^2 - 1 when E w = 1; may be negative or inf."""
        self._need_weights()
        with np.errstate(over="ignore"):
            return np.expm1(2 * self.log_largest + np.log(self.second / self.count))

    def kish_upper_limit(self, error: float = 0.05) -> Floats:
        """Return min(1, 1 / (error mean w^2)): the Kish share's limit exceeds it with chance <= error.

        For independent weights with E_mu w = 1 and any distribution: the limit is 1 / E_mu w^2, and mean w^2
        exceeds its expectation by a factor 1/error with probability at most error (Markov). There is no lower
        bound: for any N observed weights, rare unseen ones may send the limit to 0. Derived here.

        Raises UserError unless 0 < error < 1.
        """
        if not 0 < error < 1:
            raise UserError(f"error is {error:g}, expected 0 < error < 1.")
        self._need_weights()
        with np.errstate(over="ignore"):
            limit = np.exp(-2 * self.log_largest) * self.count / self.second
        return np.minimum(limit / error, 1.0)

    def excess_kurtosis(self) -> Floats:
        """Return m4 / m2^2 - 3 of the weights (population moments); meaningful only if E w^4 is finite.

        NaN if the squared coefficient of variation is below NO_SPREAD.
        """
        self._need_weights()
        # Moments of w / mean(w) are at most N^3, so nothing overflows.
        mean = self.first / self.count
        powers = ((2, self.second), (3, self.third), (4, self.fourth))
        second, third, fourth = (power / (self.count * mean**k) for k, power in powers)
        spread = second - 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            kurtosis = (fourth - 4 * third + 6 * second - 3) / spread**2 - 3
        return np.where(spread < NO_SPREAD, np.nan, kurtosis)

    def kl(self) -> Floats:
        """Return sum w log w / sum w - log(mean w), the plug-in of KL(pi, mu) = -log(perplexity share)."""
        self._need_weights()
        return self.mean_log - np.log(self.first / self.count)

    def metrics(self, level: str, which: str = "raw") -> dict[str, Floats]:
        """Return ESS shares, floor, max share, chi2 and kurtosis under the names of metric_names.

        Args:
            level: token, prefix or sequence: the level of the ratios.
            which: raw, or clamped for sums made with `upper`.
        """
        if level not in ("token", "prefix", "sequence"):
            raise unknown("level", level, ("token", "prefix", "sequence"))
        if which not in ("raw", "clamped"):
            raise unknown("kind of weights", which, ("raw", "clamped"))
        floor = "rollout_corr/ess_floor" if level == "sequence" else "rollout_corr/ess_floor_token"
        return {
            **{f"rollout_corr/ess_{how}_{level}_{which}": self.ess(how) for how in HOW if how != "kong"},
            floor: self.floor(),
            f"rollout_corr/max_share_{level}_{which}": self.max_share(),
            f"rollout_corr/chi2_{level}_{which}": self.chi2(),
            f"rollout_corr/kurtosis_{level}_{which}": self.excess_kurtosis(),
        }

    def _need_weights(self) -> None:
        if (self.count == 0).any():
            raise UserError("Expected at least one unmasked sample, count is 0.")
        if (self.first == 0).any():
            raise UserError(
                "All weights are 0, so that they sum to zero: no sample lies where pi has mass. Give samples "
                "from a behavior policy that covers pi."
            )


def expected_share(weight_A: ArrayLike, mu_A: ArrayLike, n: int, how: str = "kish") -> float:
    """E[ESS share of n independent weights], exactly: sum over all C(n+A-1, A-1) counts of A atoms.

    For kish, perplexity and max it is never below the limit and never rises with n: the sampled share is
    optimistic. Kish and perplexity are jointly convex functions of sample means, and means are a reverse
    martingale; leaving one weight out never raises the largest (docs/theory/sampled-ess.md).

    Args:
        weight_A: weights of the atoms, >= 0; an atom of mu-probability 0 is never drawn.
        mu_A: their probabilities.
        n: sample size; samples with only zero weights count as a share of 0.
        how: kish, perplexity or max.
    """
    weight_A, mu_A = np.asarray(weight_A, dtype=np.float64), np.asarray(mu_A, dtype=np.float64)
    negative = (weight_A < 0).any() or (mu_A < 0).any()
    if weight_A.shape != mu_A.shape or negative or abs(mu_A.sum() - 1) > 1e-9 or n < 1:
        raise UserError(
            f"weight_A {weight_A} and mu_A {mu_A} with n = {n}: expected weights >= 0, as many probabilities "
            "that sum to 1, and n >= 1."
        )
    counts_MA = _compositions(n, weight_A.size)
    if how == "max":
        largest_M = np.where(counts_MA > 0, weight_A, 0.0).max(-1)
        share_M = _ratio(counts_MA @ weight_A, n * largest_M)
    elif how == "kish":
        share_M = _ratio((counts_MA @ weight_A) ** 2, n * (counts_MA @ weight_A**2))
    elif how == "perplexity":
        log_A = np.log(np.where(weight_A > 0, weight_A, 1.0))
        total_M = counts_MA @ weight_A
        mean_log_M = _ratio(counts_MA @ (weight_A * log_A), total_M)
        share_M = total_M * np.exp(-mean_log_M) / n
    else:
        raise unknown("ESS", how, ("kish", "perplexity", "max"))
    from scipy import stats

    return float(share_M @ stats.multinomial.pmf(counts_MA, n, mu_A))


def _ratio(above: ArrayLike, below: Floats) -> Floats:
    """Return above / below, 0 where below is 0."""
    return np.asarray(np.divide(above, below, out=np.zeros_like(below), where=below > 0))


def _finite(log_largest: Floats) -> Floats:
    """Return 0 where every weight is 0; subtracting the largest logarithm, -inf, would give NaN."""
    return np.where(log_largest == -np.inf, 0.0, log_largest)


def _compositions(n: int, atoms: int) -> Floats:
    """Return every way to split n into `atoms` counts, [C(n+atoms-1, atoms-1), atoms]."""
    total = math.comb(n + atoms - 1, atoms - 1)
    if total > 2_000_000:
        raise UserError(f"{total:,} counts of {n} samples over {atoms} atoms; at most 2,000,000 are summed.")
    rows = np.zeros((1, 0), dtype=np.int64)
    for _ in range(atoms - 1):
        left = n - rows.sum(-1)
        repeated = np.repeat(rows, left + 1, axis=0)
        first = np.concatenate([np.arange(most + 1) for most in left])
        rows = np.column_stack([repeated, first])
    return np.column_stack([rows, n - rows.sum(-1)]).astype(np.float64)
