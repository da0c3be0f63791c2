"""Test a log's ratios against identities that hold for any two policies, and name the likeliest cause.

For tokens that mu sampled under full support, E[pi/mu | state] = 1 and E[log pi/mu | state] <= 0. Sums of
pi/mu - 1 over a sequence then have mean 0 at any staleness; sequences are the independent units of the
standard error. The LOOKS tests share FALSE_ALARM (Bonferroni). Ratios are skewed to the right, so means of
few sequences tend to fall below 1; the t statistic therefore uses Hall's transformation (1992, J. R. Stat.
Soc. B 54, 221-228). It is monotone, so a mean far from 1 is reported for any skewness. Degrees of freedom
count sequences by their share of the variance. No test is valid, and none is made, if fewer than FEW
sequences carry the variance, or if log-ratios spread so far (variance above SPREAD) that the mean depends on
weights that no sample contains.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.arrays import Floats, Ints
from testbed.logs.record import Log
from testbed.logs.row_checks import correlation, pairs_of

FALSE_ALARM = 1e-4
"""Rate at which a healthy log is flagged, over all checks (nominal; tests state the observed rate)."""
LOOKS = 4
"""Tests per log: the token ratio, the sequence ratio, the k1 estimate of KL, the inverse ratio."""
FEW = 20
"""Least number of sequences that carry the variance of a mean."""
SPREAD = 1.0
"""Largest variance of log-ratios, nats squared, at which the mean of their exponentials is tested."""
MATERIAL = 0.002
"""Least distance of a mean token ratio from 1 that is reported; rounding of log-probabilities is smaller."""


@dataclass(frozen=True)
class Mean:
    """An estimate with its standard error over sequences, and the two-sided p-value of its null value."""

    value: float
    error: float
    p: float

    @property
    def rejected(self) -> bool:
        """True if the null value is rejected at FALSE_ALARM / LOOKS."""
        return self.p < FALSE_ALARM / LOOKS


@dataclass(frozen=True)
class RatioTests:
    """Means of pi/mu and mu/pi over tokens, of the sequence ratio and of log pi/mu; None for too few."""

    token: Mean | None
    sequence: Mean | None
    log_ratio: Mean | None
    inverse: Mean | None


def tested(log: Log) -> RatioTests:
    """Return the tests of a log's ratios; tokens with pi = 0 have ratio 0, those with mu = 0 are omitted.

    The k1 estimate of KL is infinite if a token has pi = 0: then log_ratio and inverse are None.
    """
    rows = _log_ratios(log)
    with np.errstate(over="ignore", invalid="ignore"):
        return RatioTests(
            _ratio(rows),
            _ratio([row.sum(keepdims=True) for row in rows]),
            _mean(rows, 0.0),
            _ratio([-row for row in rows]),
        )


def _log_ratios(log: Log) -> list[Floats]:
    rows = []
    for one in log.sequences:
        if one.logp_mu is None or one.logp_pi is None:
            continue
        with np.errstate(invalid="ignore"):
            row = (one.logp_pi - one.logp_mu)[one.mask]
        if len(row := row[row < np.inf]):  # drops NaN too
            rows.append(row)
    return rows


def _ratio(log_rows: list[Floats]) -> Mean | None:
    """Return the mean of exp, tested against 1; -inf counts as 0.

    None if the finite logarithms spread too far, or there is none, or one is inf.
    """
    together = np.concatenate(log_rows) if log_rows else np.zeros(0)
    finite = together[np.isfinite(together)]
    if not len(finite) or (together == np.inf).any():
        return None
    # Ratios barely above 1 have no upper tail, so a truncated sampler is reported at any truncation.
    if finite.var() > (SPREAD if np.quantile(finite, 0.99) > 0.1 else 4 * SPREAD):
        return None
    return _mean([np.expm1(row) for row in log_rows], 1.0)


def _mean(rows: list[Floats], null: float) -> Mean | None:
    """Return the mean over tokens of null + row, and the test of E row = 0, clustered by sequence."""
    from scipy import stats

    sum_B = np.array([row.sum() for row in rows])
    # Beyond 1e75 the fourth powers below would overflow.
    if len(sum_B) < FEW or not np.isfinite(sum_B).all() or np.abs(sum_B).max() > 1e75:
        return None
    tokens, many = sum(map(len, rows)), len(sum_B)
    mean, spread = float(sum_B.mean()), float(sum_B.std(ddof=1))
    value = null + float(sum_B.sum()) / tokens
    if spread <= 1e-12 * max(1.0, abs(mean)):
        return Mean(value, 0.0, 0.0 if abs(value - null) > MATERIAL else 1.0)
    if max(np.abs(row).max(initial=0.0) for row in rows) < MATERIAL:  # rounding alone: nothing to test
        return Mean(value, spread * math.sqrt(many) / tokens, 1.0)
    square_B = (sum_B - mean) ** 2
    carrying = float(square_B.sum() ** 2 / (square_B**2).sum())
    if carrying < FEW:
        return None
    t = math.sqrt(many) * _unskewed(mean / spread, float((((sum_B - mean) / spread) ** 3).mean()), many)
    error = spread * math.sqrt(many) / tokens
    return Mean(value, error, float(2 * stats.t.sf(t, carrying - 1)))


def _unskewed(effect: float, skewness: float, many: int) -> float:
    """Return |mean| / spread, reduced by Hall's transformation for skewness where that lowers it."""
    moved = effect + skewness * effect**2 / 3 + skewness**2 * effect**3 / 27 + skewness / (6 * many)
    # Never more evidence than without the correction: it must not raise false alarms of its own.
    return 0.0 if moved * effect < 0 else min(abs(moved), abs(effect))


def findings(log: Log) -> list[str]:
    """Return the problems of a log's ratios, the likeliest cause first; [] if there are none."""
    if misplaced := placed(log):
        return misplaced
    pairs, found = pairs_of(log), tested(log)
    said = [
        f"the mean {name} ratio is {mean.value:.4g} ± {mean.error:.2g}, where 1 is expected"
        for name, mean in (("token", found.token), ("sequence", found.sequence))
        if mean is not None and mean.rejected and abs(mean.value - 1) > MATERIAL
    ]
    if (k1 := found.log_ratio) is not None and k1.rejected and k1.value > MATERIAL:
        mean = f"{-k1.value:.4g} ± {k1.error:.2g}"
        said.append(f"the k1 estimate of KL(mu || pi) is {mean}, but a KL is never negative")
    return [f"{_prompts(log) or _cause(found, pairs)}: {'; '.join(said)}."] if said else []


def placed(log: Log) -> list[str]:
    """Return signs that a mask or a column of log-probabilities lies beside its tokens; [] for none."""
    rows = []
    for one in log.sequences:
        if one.logp_mu is not None and one.logp_pi is not None:
            tokens = None if one.token is None else one.token[one.mask]
            rows.append((one.logp_mu[one.mask], one.logp_pi[one.mask], tokens, one.prompt))
    return _edges(rows) + _shifted(pairs_of(log))


def _prompts(log: Log) -> str:
    """Say that the masked tokens of most sequences begin with their prompt; "" otherwise."""
    begun = 0
    for one in log.sequences:
        if one.prompt is not None and one.token is not None and len(one.prompt) > 2:
            begun += np.array_equal(one.token[one.mask][: len(one.prompt)], one.prompt)
    if 2 * begun <= len(log.sequences):
        return ""
    return f"The mask holds the prompt: the masked tokens of {begun} sequences begin with it"


def _cause(found: RatioTests, pairs: list[tuple[Floats, Floats]]) -> str:
    inverse, k1, token = found.inverse, found.log_ratio, found.token
    mu, pi = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
    known = np.isfinite(mu) & np.isfinite(pi)
    mu, pi = mu[known], pi[known]
    if token is not None and abs(token.value - 1) < ROUNDED:
        for name, values in (("mu", mu), ("pi", pi)):
            if (values.astype(np.float32).view(np.uint32) & 0xFFFF == 0).all() and (values % 1 != 0).any():
                return f"Precision: every log {name} is a bfloat16 number"
    middle = _middles(pi - mu, mu + pi)
    if token is not None and token.value < 1 and max(middle) < TILT:
        return (
            "top-p, top-k or min-p in the sampler alone looks likely (log mu renormalized over the tokens "
            "kept, log pi not)"
        )
    if token is None or token.value > 1:
        # Noise in one of them tilts only the quarters by that one.
        ends = [part[end] for part in (_middles(pi - mu, mu), _middles(pi - mu, pi)) for end in (0, -1)]
        if min(map(abs, ends)) > TILT and ends[0] * ends[1] < 0 and ends[0] * ends[2] > 0 > ends[2] * ends[3]:
            return (
                "A temperature in one engine alone looks likely (pi/mu crosses 1 from rare to likely tokens)"
            )
    if base := _base(mu, pi):
        return base
    if k1 is not None and k1.value > 0 and inverse is not None and not inverse.rejected:
        return "mu and pi look swapped, or log mu is of another model or temperature (the mean of mu/pi is 1)"
    return (
        "log mu is not from the sampling distribution (another temperature or model?), or some tokens "
        "in the mask were not sampled"
    )


def _base(mu: Floats, pi: Floats) -> str:
    """Name a logarithm of another base: one column is a fixed multiple of the other."""
    if len(mu) < 50 or not correlation(mu, pi) > 0.9:
        return ""
    factor = float(mu @ pi / (pi @ pi))
    for base in (2, 10):
        for name, times in (("mu", factor), ("pi", 1 / factor)):
            # Noise in the other column pulls the factor down by a few percent.
            if abs(times * math.log(base) - 1) < 0.05:
                return f"log {name} looks like a logarithm of base {base}, {times:.2f} times the other"
    return ""


def _middles(values: Floats, by: Floats) -> list[float]:
    """Return the medians of values in the four quarters of `by`, rising."""
    return [float(np.median(part)) for part in np.array_split(values[np.argsort(by)], 4) if len(part)]


ROUNDED = 0.02
"""Largest distance of a mean token ratio from 1 that rounding to bfloat16 explains."""
TILT = 0.02
"""|median of log pi/mu| in nats, of the least or most likely quarter of tokens, that counts as a shift."""


Row = tuple[Floats, Floats, Ints | None, Ints | None]
"""log mu, log pi and the tokens under the mask, and the prompt."""


def _edges(rows: list[Row]) -> list[str]:
    """Report masks that begin too early or end too late: both log-probabilities are exactly 0 there."""
    rows = [row for row in rows if len(row[0]) > 1]
    if len(rows) < FEW:
        return []
    zero = [(mu == 0) & (pi == 0) for mu, pi, *_ in rows]
    runs = np.array([_runs(*each) for each in zip(zero, rows, strict=True)])
    inner = [
        row[max(first, 1) : len(row) - max(last, 1)] for row, (first, last) in zip(zero, runs, strict=True)
    ]
    inside = np.concatenate(inner)
    if len(inside) and inside.mean() >= 0.1:
        return []
    found = []
    for end, name, where in ((0, "first", "begin {} early"), (1, "last", "end {} late")):
        length = runs[:, end][runs[:, end] > 0]
        if len(length) > len(zero) / 2:
            usual = int(np.median(length))
            place = where.format("a token" if usual == 1 else f"{usual} tokens")
            found.append(
                f"The mask may {place}: both log-probabilities are exactly 0 at the {name} masked token of "
                f"{len(length)} of {len(zero)} sequences. Prompt tokens or padding are in the mask, or the "
                "policy is certain of that token."
            )
    return found


def _runs(zero: NDArray[np.bool_], row: Row) -> tuple[int, int]:
    """Return the number of zeros that begin and that end a row.

    More than one count as one unless they may be padding, the same token again and again, or prompt: a
    policy is also certain of whole phrases.
    """
    *_, token, prompt = row
    lengths = []
    for back in (False, True):
        ordered = zero[::-1] if back else zero
        length = 1 if ordered.all() else int(np.argmin(ordered))
        if length > 1 and token is not None:
            part = token[-length:] if back else token[:length]
            asked = prompt is not None and not back and np.array_equal(part, prompt[-length:])
            if len(np.unique(part)) > 1 and not asked:
                length = 1
        lengths.append(length)
    return lengths[0], lengths[1]


FARTHEST = 3
"""Largest shift that is looked for, in tokens."""


def _shifted(pairs: list[tuple[Floats, Floats]]) -> list[str]:
    """Report log-probabilities that correlate only after a shift."""
    scores = {0: _together(pairs, 0)}
    if scores[0] <= 0.7:
        shifts = [side * far for far in range(1, FARTHEST + 1) for side in (-1, 1)]
        scores |= {shift: _together(pairs, shift) for shift in shifts}
    best = max(scores, key=lambda shift: scores[shift])
    if best == 0 or scores[best] < 0.8 or scores[0] > scores[best] - 0.3:
        return []
    side = "behind" if best > 0 else "before"
    far = "one token" if abs(best) == 1 else f"{abs(best)} tokens"
    return [
        f"log pi stands {far} {side} log mu: their correlation is {scores[0]:.2f} as logged and "
        f"{scores[best]:.2f} with log pi moved by {-best:+d}."
    ]


def _together(pairs: list[tuple[Floats, Floats]], shift: int) -> float:
    """Return the correlation of log mu at t with log pi at t + shift; 0 for fewer than 50 tokens."""
    ends = slice(max(0, -shift), None), slice(max(0, shift), None)
    rows = []
    for mu, pi in pairs:
        one, other = mu[ends[0]], pi[ends[1]]
        rows.append(np.stack([one[: len(other)], other[: len(one)]]))
    both = np.concatenate(rows, axis=1) if rows else np.zeros((2, 0))
    both = both[:, np.isfinite(both).all(0)]
    if both.shape[1] < 50 or both.std(1).min() < 1e-9:
        return 0.0
    return float(np.corrcoef(both[0], both[1])[0, 1])
