"""Map a stack's logged metrics by step to our names, and compare them with documented limits."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from testbed.diagnostics.metric_aliases import ALIASES
from testbed.diagnostics.peer_limits import PEERS, Alert, Threshold, alerts
from testbed.errors import UserError, counted, printable, suggest
from testbed.logs.record import whole

Row = dict[str, Any]
CALLBACK = {
    "ess_sequence": "rollout_corr/ess_kish_sequence_raw", "ess_floor": "rollout_corr/ess_floor",
    "ess_token": "rollout_corr/ess_kish_token_raw", "kl": "rollout_corr/kl_mu_pi_k3",
    "ratio_mean": "ratio/mean", "ratio_max": "ratio/max", "pareto_k": "rollout_corr/pareto_k_sequence",
}  # fmt: skip
"""Short names that adapters.trl_callback logs after PREFIX -> metrics of docs/metrics.md."""
PREFIX = "testbed/"
LIMITS = (
    *PEERS,
    Threshold(
        "rollout_corr/pareto_k_sequence", 0.7, False,
        "Vehtari et al. (2024): above 0.7 no mean of the weights can be trusted, whatever N",
    ),
)  # fmt: skip
FINITE = ("loss", "grad_norm", "pg_loss", "policy_loss")
"""Last parts of keys that are finite in every valid run."""
LOWER = "exp of mean |log rho|: at most ours, by Jensen"
BLIND = (
    "A log of scalars holds no tokens and so no ratios: it cannot show tails, ages, tokens that an "
    "objective clips, a shifted mask, or mu and pi swapped. A log of tokens shows them."
)
HOW = {
    "TRL": "TRL logs sampling/sampling_logp_difference with use_vllm; "
    "DiagnosticsCallback(trainer, everything=True) logs ESS, KL and tails.",
    "verl": "verl logs rollout_corr/* where algorithm.rollout_correction is set and "
    "actor_rollout_ref.rollout.calculate_log_probs=True.",
}


@dataclass(frozen=True)
class Name:
    """A stack's key as our metric. differs: the difference, "" for none. value: converts it to ours."""

    metric: str
    differs: str = ""
    value: Callable[[float], float] = float


def names(stack: str) -> dict[str, Name]:
    """Return our names for a stack's keys; of two metrics with one key, the first one listed."""
    found: dict[str, Name] = {}
    for metric, known in ALIASES.items():
        for alias in known:
            if alias.stack == stack:
                found.setdefault(alias.key, Name(metric, alias.differs))
    if stack == "TRL":
        found["sampling/sampling_logp_difference/mean"] = Name("token_mult_prob_error", LOWER, _exp)
    if stack == "TRL async":
        found = names("TRL") | found
    return found


def _exp(value: float) -> float:
    # math.exp raises above 709; a log may hold such a number where a run broke.
    return math.exp(min(value, 700.0))


STACKS = tuple(
    dict.fromkeys(("verl", "TRL", *(alias.stack for known in ALIASES.values() for alias in known)))
)


def read_as(key: str, known: Mapping[str, Name]) -> tuple[int, Name] | None:
    """Return (rank, name) of a key, best rank 0: written by this project, the same number, one that differs.

    A key with dots and no slash is read with slashes, and one that a tracker put below train/ without it.
    None for an unknown key.
    """
    key = key if "/" in key else key.replace(".", "/")
    key = key if key in known else key.removeprefix("train/")
    short = key.removeprefix(PREFIX)
    if short != key:
        return 0, Name(CALLBACK.get(short, short))
    if key in known:
        return (2 if known[key].differs else 1), known[key]
    limited = key.startswith("rollout_corr/") or any(each.metric == key for each in LIMITS)
    return (1, Name(key)) if limited and key in _OURS else None


_OURS = {
    *(each.metric for each in LIMITS),
    *ALIASES,
    "rollout_corr/ess_floor",
    "rollout_corr/ess_floor_token",
}


@dataclass(frozen=True)
class ScalarLog:
    """Numbers by step.

    source: the stack. rows: step and our metrics, ascending. keys: per metric the stack's key and how its
    number differs. broken: per key of FINITE that is sometimes not finite: first such step, count, total.
    unread: keys that match no metric here.
    """

    source: str
    rows: tuple[dict[str, float], ...]
    keys: Mapping[str, tuple[str, str]]
    broken: Mapping[str, tuple[float, int, int]] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def table(self) -> list[Row]:
        """Return a row per metric: first, last, smallest and largest value, and the stack's name for it."""
        found = []
        for metric, (key, differs) in self.keys.items():
            values = [row[metric] for row in self.rows if not math.isnan(row.get(metric, math.nan))]
            if values:
                shown: Row = {"metric": metric, "their name": key, "steps": len(values)}
                shown |= {"first": values[0], "last": values[-1], "smallest": min(values)}
                found.append(shown | {"largest": max(values), "differs": differs})
        return found

    def alerts(self) -> list[Alert]:
        """Return alerts for every documented limit on a metric here; those that fired come first."""
        found = []
        for alert in alerts(self.rows, LIMITS):
            key, differs = self.keys[alert.threshold.metric]
            note = "; ".join(part for part in (alert.note, differs) if part)
            found.append(replace(alert, note=note, threshold=replace(alert.threshold, key=key)))
        return found


def stack_of(keys: Iterable[str]) -> str:
    """Return the stack with the most matching keys, "" if no key matches any."""
    held = set(keys)
    tables = {stack: names(stack) for stack in STACKS}
    count = {stack: sum(read_as(key, known) is not None for key in held) for stack, known in tables.items()}
    best = max(count, key=lambda stack: count[stack])
    return best if count[best] else ""


def scalar_log(
    stack: str, entries: Iterable[tuple[str, Any, Mapping[str, Any]]], notes: Sequence[str] = ()
) -> ScalarLog:
    """Return entries (place, step, {key: value}) as a log; merges entries of a step, the last one wins.

    Raises UserError for a step that is not a whole number, and if no key is a metric here.
    """
    by_step: dict[int, dict[str, float]] = {}
    for where, step, entry in entries:
        at = whole(step, f"{where}: step")
        if at is None:
            raise UserError(f"{where}: step is missing; expected the optimizer step as a whole number.")
        numbers = {printable(key): _number(value) for key, value in entry.items()}
        known = {key: number for key, number in numbers.items() if number is not None}
        by_step.setdefault(at, {}).update(known)
    every = list(dict.fromkeys(key for row in by_step.values() for key in row if key != "step"))
    chosen = _chosen(every, names(stack))
    if not chosen:
        raise nothing_known(every, stack)
    rows = tuple(
        {"step": float(step)}
        | {metric: name.value(row[key]) for metric, (key, name) in chosen.items() if key in row}
        for step, row in sorted(by_step.items())
    )
    taken = {key for key, _ in chosen.values()}
    return ScalarLog(
        stack,
        rows,
        {metric: (key, name.differs) for metric, (key, name) in chosen.items()},
        _broken(by_step, every),
        tuple(key for key in every if key not in taken),
        tuple(dict.fromkeys(notes)),
    )


def nothing_known(keys: Sequence[str], stack: str) -> UserError:
    """Return the error for numbers that no stack is known to log."""
    if not keys:
        return UserError('No value is a number; expected JSON numbers by key, as 0.5 and not "0.5".')
    wanted = list(names(stack or "verl"))
    near = next((said for key in keys[:50] if (said := suggest(key, wanted))), "")
    return UserError(
        f"None of the keys {', '.join(keys[:8])} is a metric known here. The nearest "
        f"format is {stack or 'verl'}'s, without {', '.join(wanted[:4])} or another of its {len(wanted)} "
        f"names.{near} `testbed list metrics` has all of them."
    )


def _chosen(keys: Sequence[str], known: Mapping[str, Name]) -> dict[str, tuple[str, Name]]:
    """Return the key from which each metric is read: the one of best rank."""
    ranked = [(found[0], key, found[1]) for key in keys if (found := read_as(key, known)) is not None]
    chosen: dict[str, tuple[str, Name]] = {}
    for _, key, name in sorted(ranked, key=lambda each: each[0]):
        chosen.setdefault(name.metric, (key, name))
    return chosen


def _number(value: Any) -> float | None:
    """Return a number, NaN for null (orjson's form of NaN), None for anything else."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _broken(
    by_step: Mapping[int, Mapping[str, float]], keys: Sequence[str]
) -> dict[str, tuple[float, int, int]]:
    found = {}
    for key in keys:
        if key.replace(".", "/").rpartition("/")[2] in FINITE:
            held = [(step, row[key]) for step, row in sorted(by_step.items()) if key in row]
            lost = [step for step, value in held if not math.isfinite(value)]
            if lost:
                found[key] = (float(lost[0]), len(lost), len(held))
    return found


WINDOW, LOST, CLEAR = 3, 0.5, 6.0


def fall(log: ScalarLog) -> str:
    """Say that the reward lost over LOST of its gain, since when, and what entropy did; "" if it did not.

    Read in means of WINDOW values. A gain counts that is CLEAR times the median change from mean to mean.
    """
    held = [row for row in log.rows if math.isfinite(row.get("reward/mean", math.nan))]
    each = [row["reward/mean"] / WINDOW for row in held]
    mean = [sum(each[n : n + WINDOW]) for n in range(len(held) - WINDOW + 1)]
    if len(mean) <= 2 * WINDOW or not all(map(math.isfinite, mean)):
        return ""
    best = max(range(len(mean)), key=lambda n: mean[n])
    gain = mean[best] - mean[0]
    moves = [abs(later - sooner) for sooner, later in pairwise(mean[::WINDOW])]
    if gain <= CLEAR * statistics.median(moves) or mean[-1] >= mean[best] - LOST * gain:
        return ""
    spent = [row["actor/entropy"] for row in held if math.isfinite(row.get("actor/entropy", math.nan))]
    entropy = f", while actor/entropy went from {spent[0]:.3g} to {spent[-1]:.3g}" if spent else ""
    return (
        f"reward/mean (their {log.keys['reward/mean'][0]}): it rose from {mean[0]:.3g} to {mean[best]:.3g} "
        f"until step {held[best + WINDOW - 1]['step']:.0f} and fell to {mean[-1]:.3g}{entropy}"
    )


def verdict(log: ScalarLog, found: Sequence[Alert]) -> str:
    """Return one line: healthy as far as scalars show, undecided, or what to check, why and since when.

    Args:
        log: a log of scalars.
        found: its alerts.
    """
    if log.broken:
        key, (first, many, of) = min(log.broken.items(), key=lambda each: each[1][0])
        return f"Look at {key}: it is not finite at {many} of {of} logged steps, since step {first:.0f}."
    for metric, (key, _) in log.keys.items():
        most = max((row[metric] for row in log.rows if metric in row), default=0.0)
        if most > 1 and ("/ess_" in metric or "clip_share" in metric):
            return f"Look at {metric} (their {key}): it is a share of at most 1, {most:.3g} here. In percent?"
    fired = sorted((alert for alert in found if alert.fired), key=lambda alert: alert.first)
    if fired:
        one = fired[0]
        limit, note = one.threshold, f"; {one.note}" if one.note else ""
        more = f" Crossed later or as early: {counted(len(fired) - 1, 'more limit')}." if fired[1:] else ""
        return (
            f"Look at {limit.metric} (their {limit.key}): {'below' if limit.below else 'above'} "
            f"{limit.limit:g} at {one.crossed} of {one.steps} steps, since step {one.first:.0f}, "
            f"{one.worst:.3g} at worst ({limit.source}{note}).{more}"
        )
    if fallen := fall(log):
        return f"Look at {fallen}."
    able = [alert for alert in found if "never fire" not in alert.note]
    if not able:
        how = HOW.get(log.source.removesuffix(" async"), "")
        return f"Undecided: no metric of the log has a limit that a peer documents. {how}".rstrip()
    limits = f"{len(able)} limits that peers document were" if able[1:] else "one limit that applies was"
    steps = f"the {limits} not crossed at {counted(max(alert.steps for alert in able), 'logged step')}"
    weak = "; one was compared with a lower bound alone" if any(LOWER in a.note for a in able) else ""
    return f"Healthy as far as scalars tell: {steps}{weak}."
