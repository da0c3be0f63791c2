"""Check a log for signs of wrong log-probabilities, and give the numbers behind each suspicion."""

from collections.abc import Sequence

import numpy as np

from envs.arrays import Floats
from testbed.logs.ratio_checks import FEW as MANY_ENOUGH
from testbed.logs.ratio_checks import findings, placed, tested
from testbed.logs.record import Log
from testbed.logs.row_checks import (
    copied,
    disordered,
    far_at_age_0,
    not_per_token,
    repeated,
    unrelated,
    wrong_advantages,
)

SLOPE = 1.1
"""Suspect a temperature if spread(log pi) / spread(log mu) is above this, or below its inverse."""
TOGETHER = 0.9
"""Smallest correlation of both for that suspicion: spreads of unrelated numbers mean little."""
FEW = 50
"""Number of tokens below which nothing is suspected."""
SURE = 0.1
"""|log pi| above which log mu = 0 cannot come from a certain token of the same model."""
SMALL = 1e-3
A_CAUSE = 0.01
"""Share of tokens that only look certain from which they are named before other causes of wrong ratios."""


def suspicions(log: Log) -> list[str]:
    """Return the suspicions about a log, one sentence each; none changes a number."""
    advantages = [f"Advantages: {one}" for one in wrong_advantages(log)]
    return [*serious(log), *advantages, *ambiguous(log), *_notes(log)]


def _notes(log: Log) -> list[str]:
    """Return suspicions that leave the numbers about the ratios valid."""
    found = [*repeated(log), *_missing(log), *_mixed(log), *far_at_age_0(log), *_groups(log)]
    for name, label in (("logp_mu", "log mu"), ("logp_pi", "log pi")):
        found += _rounding(_under_mask(log, name), label)
    return found + _declared(log)


def serious(log: Log) -> list[str]:
    """Return the problems that invalidate all numbers about the ratios, the likeliest cause first."""
    above, most = _above_zero(log)
    found = not_per_token(log) or findings(log)
    pairs = _pairs(log)
    if pairs and not placed(log):  # a shift or a wrong mask causes such zeros and spreads
        zeros, share = _zeros(*pairs)
        if not found:
            found = zeros + [ONE_ENGINE.format(slope) for slope in _slopes(_pairs(log, fresh=True))]
        elif share > A_CAUSE:
            found = zeros + found
    found = found or disordered(log) or copied(log)
    return above + found if most else found + above


def ambiguous(log: Log) -> list[str]:
    """Return what a mistake and stale data both explain, where no token of age 0 tells them apart."""
    fresh = _pairs(log, fresh=True)
    if findings(log):
        return []
    told = fresh and len(fresh[0]) >= FEW
    return unrelated(log) + ([] if told else [EITHER.format(slope) for slope in _slopes(_pairs(log))])


def _pairs(log: Log, fresh: bool = False) -> tuple[Floats, Floats] | tuple[()]:
    """Return log mu and log pi under the mask, [N] each; () without any. fresh: of tokens of age 0 alone."""
    found = []
    for one in log.sequences:
        if one.logp_mu is None or one.logp_pi is None:
            continue
        kept = one.mask
        if fresh:
            if one.version is None or one.trainer_version is None:
                continue
            kept = kept & (one.version == one.trainer_version)
        found.append(np.stack([one.logp_mu[kept], one.logp_pi[kept]]))
    if not found:
        return ()
    mu, pi = np.concatenate(found, axis=1)
    return mu, pi


def verdict(log: Log, alerts: Sequence[str] = ()) -> str:
    """Return one line: healthy, undecided, or what to check and why.

    Args:
        log: a training log.
        alerts: metrics that crossed a limit, the most important first.
    """
    if not (log.has("logp_mu") and log.has("logp_pi")):
        return "Undecided: the log lacks log-probabilities of the sampler (mu) or of the trainer (pi)."
    if found := serious(log):
        return f"Look at the log-probabilities: {found[0]}"
    if wrong := wrong_advantages(log):
        return f"Look at the advantages: {wrong[0]}"
    if unclear := ambiguous(log):
        return f"Undecided: {unclear[0]}"
    others = _notes(log)
    note = f". Note: {others[0]}" if others else ", and no check found anything."
    if tested(log).token is None:
        return (
            f"Undecided: fewer than {MANY_ENOUGH} sequences carry the variance of the mean ratio, or "
            f"log-ratios spread too far, so that it cannot be tested against 1{note}"
        )
    if alerts:
        crossed = f"Look at {alerts[0]}: it crossed a limit that peers document; log-probabilities look right"
        return f"{crossed}{note if others else '.'}"
    return f"Healthy: mean ratios are 1 within their errors{note}"


def _above_zero(log: Log) -> tuple[list[str], bool]:
    """Return what is said of values above 0, and True if they are more than half of a column."""
    found, most = [], False
    for name, label in (("logp_mu", "log mu"), ("logp_pi", "log pi"), ("logp_anchor", "log anchor")):
        values = _under_mask(log, name)
        if above := int((values > SMALL).sum()):
            told = f"{above} of {values.size} tokens have {label} > 0"
            known, cause = values[np.isfinite(values)], ""
            if above > values.size / 2:
                most = True
                if (known >= 0).all():
                    looks = "losses, -log p" if (known > 1).any() else "probabilities without the logarithm"
                    cause = f" They look like {looks}."
            found.append(f"{told}, which is impossible for a log-probability.{cause}")
    return found, most


def _under_mask(log: Log, name: str) -> Floats:
    parts = [getattr(one, name)[one.mask] for one in log.sequences if getattr(one, name) is not None]
    return np.concatenate(parts) if parts else np.zeros(0)


def _missing(log: Log) -> list[str]:
    found = []
    for name, label in (("logp_mu", "log mu"), ("logp_pi", "log pi"), ("logp_anchor", "log anchor")):
        values = _under_mask(log, name)
        missing, zero = int(np.isnan(values).sum()), int((values == -np.inf).sum())
        if missing:
            found.append(
                f"{missing} of {values.size} tokens have no {label}: they are left out, also of the "
                "weights of their sequences."
            )
        if zero:
            found.append(
                f"{zero} of {values.size} tokens have {label} = -inf: left out of token metrics. Tokens cut "
                "by top-k or top-p in one engine alone, or an underflow."
            )
    return found


def _rounding(values: Floats, label: str) -> list[str]:
    """Report log-probabilities that are all 16-bit numbers, and what that adds to mean (log rho)^2 / 2."""
    kept = values[np.isfinite(values) & (values != 0)]
    if kept.size < FEW:
        return []
    single = kept.astype(np.float32)
    if not (single == kept).all():
        return []
    bfloat = (single.view(np.uint32) & 0xFFFF == 0).all()
    half = (np.abs(kept) < 65504).all() and (kept.astype(np.float16).astype(np.float64) == kept).all()
    if not (bfloat or half):
        return []
    digits, name = (8, "bfloat16") if bfloat else (11, "float16")
    step = 2.0 ** (np.floor(np.log2(np.abs(kept))) + 1 - digits)
    noise = float((step**2).mean() / 24)  # rounding is uniform over a step: variance step^2 / 12
    return [
        f"Every {label} is a {name} number: rounding alone adds about {noise:.2g} nats to kl_mu_pi_k2, and "
        "more to sequence ratios by their length."
    ]


def _zeros(mu: Floats, pi: Floats) -> tuple[list[str], float]:
    """Report tokens that only look certain: a placeholder of prompt or tool output under the mask.

    Returns the sentences, and the largest share of such tokens.
    """
    found, share = [], 0.0
    for name, one, other in (("log mu", mu, pi), ("log pi", pi, mu)):
        count = int(((one == 0) & (other < -SURE)).sum())
        if count:
            share = max(share, count / one.size)
            found.append(
                f"{count} of {one.size} tokens under the mask have {name} = 0 where the other is below "
                f"-{SURE}: prompt or tool tokens with a placeholder, which the mask should leave out."
            )
    return found, share


SPREADS = "log pi spreads {:.2f} times as far as log mu, with which it is correlated. "
ONE_ENGINE = SPREADS + (
    "A temperature that only one engine applies to its log-probabilities has this effect at age 0, and the "
    "ratios are then wrong."
)
EITHER = SPREADS + (
    "Either the policy has changed so since it sampled, or one engine alone applies a temperature; tokens of "
    "age 0 would tell."
)


def _slopes(pairs: tuple[Floats, Floats] | tuple[()]) -> list[float]:
    """Return the spread of log pi over that of log mu, if it is beyond SLOPE and the two are correlated."""
    if not pairs:
        return []
    mu, pi = pairs
    known = np.isfinite(mu) & np.isfinite(pi) & (mu != 0) & (pi != 0)
    mu, pi = mu[known], pi[known]
    if mu.size < FEW or min(mu.std(), pi.std()) == 0:
        return []
    slope = float(pi.std() / mu.std())
    if np.corrcoef(mu, pi)[0, 1] < TOGETHER or 1 / SLOPE <= slope <= SLOPE:
        return []
    return [slope]


def _declared(log: Log) -> list[str]:
    found = sorted({one.temperature for one in log.sequences if one.temperature is not None} - {1.0})
    if not found:
        return []
    shown = ", ".join(f"{value:g}" for value in found)
    return [f"Sampled at temperature {shown}: either both log-probabilities must include it, or neither."]


def _mixed(log: Log) -> list[str]:
    versions = [one.version[one.mask] for one in log.sequences if one.version is not None and one.mask.any()]
    mixed = sum(len(np.unique(each)) > 1 for each in versions)
    found = []
    if mixed:
        found.append(
            f"{mixed} of {len(versions)} sequences have tokens of several weights versions: their sequence "
            "ratio is not the importance weight of any single policy."
        )
    if versions and any(one.trainer_version is None for one in log.sequences):
        found.append(
            "Ages are counted from the newest version in each step's batch, because the trainer's version "
            "is unknown: ages are lower bounds."
        )
    ages = [one.trainer_version - one.version.max() for one in log.sequences
            if one.trainer_version is not None and one.version is not None and len(one.version)]  # fmt: skip
    if early := sum(age < 0 for age in ages):
        newer = f"{early} sequences come from weights newer than the trainer's"
        found.append(f"{newer}: versions are numbered differently.")
    return found


def _groups(log: Log) -> list[str]:
    sizes: dict[str, int] = {}
    for one in log.sequences:
        sizes[one.group] = sizes.get(one.group, 0) + 1
    counts = np.array(list(sizes.values()))
    usual = int(np.median(counts))
    if usual > 1 and (more := int((counts >= 2 * usual).sum())):
        return [
            f"{more} of {counts.size} groups have twice the usual {usual} sequences or more: a prompt that "
            "came twice in a step cannot be told from one larger group."
        ]
    return []
