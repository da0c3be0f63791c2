"""Check whether what stands in a row belongs together: log-probabilities, rewards, advantages, versions."""

import math
from collections import defaultdict

import numpy as np

from envs.arrays import Floats
from testbed.logs.record import Log, LoggedSequence

FEW = 20
"""Sequences below which nothing is said."""
UNLIKELY = 20.0
"""-log mu of a response, nats, beyond which mu does not draw it twice by chance."""
UNRELATED = 0.2
"""Correlation of two columns below which they may belong to different rows."""
SPREAD = 0.1
"""Standard deviation of log-probabilities, nats, below which a correlation means nothing."""
APART = 0.01
"""KL in nats per token at age 0 that rounding to bfloat16 does not explain."""

Pair = tuple[Floats, Floats]


def pairs_of(log: Log) -> list[Pair]:
    """Return log mu and log pi under the mask of every sequence that has both."""
    return [(one.logp_mu[one.mask], one.logp_pi[one.mask]) for one in log.sequences
            if one.logp_mu is not None and one.logp_pi is not None]  # fmt: skip


def not_per_token(log: Log) -> list[str]:
    """Report log-probabilities that are one number per sequence, or sums up to the token."""
    found = []
    pairs = [pair for pair in pairs_of(log) if len(pair[0]) > 2]
    for i, name in enumerate(("log mu", "log pi")):
        rows = [pair[i] for pair in pairs]
        if len(rows) < FEW or not all(map(_spreads, (pair[1 - i] for pair in pairs))):
            continue
        if not all(np.isfinite(row).all() for row in rows):
            continue
        if not any(map(_spreads, rows)):
            found.append(f"{name} is the same at all tokens of a sequence: a mean or sum, not one per token.")
        elif all((np.diff(row) <= 0).all() for row in rows):
            found.append(f"{name} never rises along a sequence: sums up to the token, not one per token.")
    return found


def _spreads(row: Floats) -> bool:
    return bool(np.ptp(row) > 0)


def copied(log: Log) -> list[str]:
    """Report log pi that equals log mu although newer weights computed it."""
    pairs = pairs_of(log)
    if len(pairs) < FEW or not all(np.array_equal(*pair) for pair in pairs):
        return []
    ages = [one.trainer_version - one.version[one.mask] for one in log.sequences
            if one.trainer_version is not None and one.version is not None]  # fmt: skip
    youngest = min((int(age.min()) for age in ages if len(age)), default=0)
    if len(ages) < len(log.sequences) or youngest < 1:
        return []
    return [
        f"log pi equals log mu at every token, but the weights of pi are {youngest} versions newer or more: "
        "one is a copy of the other, or the weights never changed."
    ]


def disordered(log: Log) -> list[str]:
    """Report log pi that is another response's of the same group."""
    if not unrelated(log) or not (others := _partners(log)):
        return []
    return [
        f"log pi is that of another response of the group in {others} of {len(log.sequences)} sequences: the "
        "responses stand in different orders."
    ]


def unrelated(log: Log) -> list[str]:
    """Report log-probabilities that do not go together token by token."""
    pairs = pairs_of(log)
    if len(pairs) < FEW:
        return []
    mu, pi = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
    known = np.isfinite(mu) & np.isfinite(pi)
    together = correlation(mu[known], pi[known])
    if not together < UNRELATED:
        return []
    return [
        f"log mu and log pi hardly go together, token by token (correlation {together:.2f}): rows or tokens "
        "in different orders, or two policies far apart."
    ]


def correlation(one: Floats, other: Floats) -> float:
    """Return the correlation, NaN for fewer than 8 numbers or hardly any spread."""
    if len(one) < 8 or min(one.std(), other.std()) < SPREAD:
        return math.nan
    return float(np.corrcoef(one, other)[0, 1])


def _partners(log: Log) -> int:
    """Count sequences whose log mu goes with the log pi of another response of their group; 0 for few."""
    groups: dict[tuple[int, str], list[Pair]] = defaultdict(list)
    for one in log.sequences:
        if one.logp_mu is not None and one.logp_pi is not None and one.length >= 8:
            groups[one.step, one.group].append((one.logp_mu[one.mask], one.logp_pi[one.mask]))
    found, looked = 0, 0
    for members in groups.values():
        for i, (mu, _) in enumerate(members[:64]):
            looked += 1
            for j, (_, pi) in enumerate(members[:64]):
                width = min(len(mu), len(pi))
                if i != j and correlation(mu[:width], pi[:width]) > 0.9:
                    found += 1
                    break
    return found if 2 * found > looked else 0


@np.errstate(over="ignore", invalid="ignore")  # rewards may be as large as 1e300
def wrong_advantages(log: Log) -> list[str]:
    """Report advantages that do not rise with the rewards of their groups."""
    groups: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for one in log.sequences:
        if one.reward is not None and (advantage := _mean_advantage(one)) is not None:
            groups[one.step, one.group].append((one.reward, advantage))
    kept = []
    for members in groups.values():
        both = np.array(members) - np.mean(members, axis=0)
        largest = np.abs(both).max(axis=0)
        if (largest > 1e-9 * np.abs(members).max(axis=0)).all():  # else all are equal but for rounding
            both /= largest
            kept.append(both / np.linalg.norm(both, axis=0))
    together = sum(float(both[:, 0] @ both[:, 1]) for both in kept) / max(len(kept), 1)
    if sum(map(len, kept)) < 5 * FEW or not together < UNRELATED:
        return []
    shown = f"(mean correlation {together:.2f})"
    if together < -0.5:
        return [f"within groups they fall where rewards rise {shown}: the sign may be reversed."]
    return [f"within groups they hardly rise with rewards {shown}: they may belong to other responses."]


def _mean_advantage(one: LoggedSequence) -> float | None:
    if one.advantage is None:
        return one.scalar_advantage
    kept = one.advantage[one.mask]
    return float(kept.mean()) if len(kept) and np.isfinite(kept).all() else None


def repeated(log: Log) -> list[str]:
    """Report responses that stand in a step twice or more, and that no sampler draws twice."""
    seen: set[tuple[int, bytes, bytes]] = set()
    copies = 0
    for one in log.sequences:
        if one.logp_mu is None or not -one.logp_mu[one.mask].sum() > UNLIKELY:
            continue
        pi = b"" if one.logp_pi is None else one.logp_pi.tobytes()
        key = (one.step, one.logp_mu.tobytes(), pi)
        copies += key in seen
        seen.add(key)
    if not copies:
        return []
    return [
        f"{copies} of {len(log.sequences)} sequences are copies of another one of their step, in every "
        "log-probability: ESS and errors count them as independent."
    ]


def far_at_age_0(log: Log) -> list[str]:
    """Report a KL of fresh tokens that is larger than the rounding of engines."""
    found = []
    for one in log.sequences:
        if one.logp_mu is None or one.logp_pi is None or one.version is None or one.trainer_version is None:
            continue
        fresh = one.mask & (one.version == one.trainer_version)
        with np.errstate(invalid="ignore"):  # -inf of both
            found.append((one.logp_pi - one.logp_mu)[fresh])
    x = np.concatenate(found) if found else np.zeros(0)
    x = x[np.isfinite(x)]
    if len(x) < 5 * FEW or not (kl := float((np.expm1(x) - x).mean())) > APART:
        return []
    return [
        f"Tokens of age 0 have a KL of {kl:.2g} nats each, more than rounding to bfloat16 explains: versions "
        "may be wrong, or one engine is quantized."
    ]
