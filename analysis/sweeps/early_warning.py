"""Alerts about a training log: at limits that peers document, and at those that a committed table found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.experiments.lag.ess_predicts_collapse import EARLY, EXPERIMENT, SIGNS
from analysis.judging.intervals import wilson_interval
from analysis.tables.committed import COMMITTED, load_committed
from testbed.errors import UserError

Row = Mapping[str, float]
LOGGED = (
    "rollout_corr/ess_kish_sequence_raw",
    "rollout_corr/ess_max_sequence_raw",
    "rollout_corr/kl_mu_pi_k3",
)
"""Metrics behind the early signs that a log of tokens has whatever the objective."""


@dataclass(frozen=True)
class Threshold:
    """A limit: metric, where it warns (below or above), and who says so, with their own name for it."""

    metric: str
    limit: float
    below: bool
    source: str
    key: str = ""
    scale: str = ""
    """log10 where means over steps are taken of logarithms."""


PEERS = (
    Threshold(
        "rollout_corr/ess_kish_token_clamped", 0.3, True,
        "verl, docs/algo/rollout_corr.md: 0.5 is good, 0.3 a warning",
        "rollout_corr/rollout_is_eff_sample_size",
    ),
    Threshold(
        "rollout_corr/ess_kish_sequence_clamped", 0.3, True,
        "verl, docs/algo/rollout_corr.md, in sequence mode; there weighted by length",
        "rollout_corr/rollout_is_eff_sample_size",
    ),
    Threshold(
        "rollout_corr/rollout_is_mean", 0.5, True,
        "verl, docs/algo/rollout_corr.md: mean weight below 0.5 or above 2", "rollout_corr/rollout_is_mean",
    ),
    Threshold(
        "rollout_corr/chi2_token", 1.0, False, "verl, docs/algo/rollout_corr.md: warning line of its plot",
        "rollout_corr/chi2_token",
    ),
    Threshold(
        "rollout_corr/chi2_sequence", 1.0, False, "verl, docs/algo/rollout_corr.md: warning line of its plot",
        "rollout_corr/chi2_seq",
    ),
    Threshold(
        "rollout_corr/kl_mu_pi_k1", 0.01, False,
        "Tinker's documentation, RL hyperparameters: training is stable below 0.01",
        "optim/kl_sample_train_v1",
    ),
    Threshold(
        "rollout_corr/kl_mu_pi_k2", 0.01, False,
        "Tinker's documentation, RL hyperparameters: training is stable below 0.01",
        "optim/kl_sample_train_v2",
    ),
    Threshold(
        "token_mult_prob_error", 1.05, False,
        "NeMo-RL, nemo_rl/algorithms/grpo.py: above 1.05 it plots the sample", "token_mult_prob_error",
    ),
)  # fmt: skip
"""Limits that peers write down. PSIS's limit on Pareto-k depends on n and comes with the tails."""


@dataclass(frozen=True)
class Alert:
    """What became of one threshold: since which step it is crossed, how often, and the worst value."""

    threshold: Threshold
    first: float
    crossed: int
    steps: int
    worst: float
    note: str = ""

    @property
    def fired(self) -> bool:
        """Whether it was crossed at any step."""
        return self.crossed > 0

    def plain(self) -> dict[str, Any]:
        """Return the alert as one row."""
        side = "below" if self.threshold.below else "above"
        return {
            "metric": self.threshold.metric,
            "warns": f"{side} {self.threshold.limit:.3g}",
            "crossed": f"{self.crossed} of the {self.steps} steps with a value" if self.fired else "never",
            "since step": f"{self.first:.0f}" if self.fired else "",
            "worst": self.worst,
            "their name": self.threshold.key,
            "source": self.threshold.source + (f"; {self.note}" if self.note else ""),
        }


def alerts(rows: Sequence[Row], thresholds: Sequence[Threshold]) -> list[Alert]:
    """Return what became of every threshold whose metric the rows have; those that fired first."""
    found = [alert for each in thresholds if (alert := _alert(rows, each)) is not None]
    return sorted(found, key=lambda alert: not alert.fired)


def _alert(rows: Sequence[Row], threshold: Threshold) -> Alert | None:
    known = [
        (row["step"], row[threshold.metric])
        for row in rows
        if not math.isnan(row.get(threshold.metric, math.nan))
    ]
    if not known:
        return None
    sign = 1.0 if threshold.below else -1.0
    crossed = [(step, value) for step, value in known if sign * value < sign * threshold.limit]
    worst = min((value for _, value in known), key=lambda value: sign * value)
    return Alert(
        threshold,
        crossed[0][0] if crossed else math.nan,
        len(crossed),
        len(known),
        worst,
        _floor(rows, threshold),
    )


def _floor(rows: Sequence[Row], threshold: Threshold) -> str:
    """Say where a sampled ESS of so few sequences cannot fall below the limit."""
    if "/ess_" not in threshold.metric:
        return ""
    name = "rollout_corr/ess_floor" + ("" if "sequence" in threshold.metric else "_token")
    floor = min((row[name] for row in rows if name in row), default=0.0)
    if not floor >= threshold.limit:
        return ""
    return f"it can never fire: the smallest value of N sequences is 1/N = {floor:.2g}"


def learned(folder: Path = COMMITTED) -> tuple[tuple[Threshold, ...], str]:
    """Return the limits that tell collapsing runs best, from the committed table of signs, and a sentence.

    For every sign that a log of tokens has: the limit with the largest Youden index (Youden 1950), share of
    the collapsing runs that it flags less share of the others, where that share's Wilson interval excludes
    chance, that is where the lowest true positive share is above the highest false positive one. Nothing
    without the table.
    """
    try:
        table = load_committed([EXPERIMENT.name], folder)[EXPERIMENT.name].frame
    except UserError:
        said = f"The table {EXPERIMENT.name} is not among the committed ones"
        return (), f"{said}: no limits from this laboratory."
    found = [
        each
        for name, (metric, scale) in SIGNS.items()
        if metric in LOGGED
        and (each := _youden(table, name, metric, "log10" if scale is not None else "")) is not None
    ]
    runs, lost = len(table), int(table["collapsed"].astype(bool).sum())
    said = f"{runs} runs of a toy language model, {lost} collapsed after step {EARLY}"
    return tuple(found), f"From table {EXPERIMENT.name}: {said}; the metric's mean over steps 1 to {EARLY}."


def _youden(table: pd.DataFrame, name: str, metric: str, scale: str) -> Threshold | None:
    rows = table[np.isfinite(table[name])]
    value, event = rows[name].to_numpy(dtype=float), rows["collapsed"].to_numpy(dtype=bool)
    if not event.any() or event.all():
        return None
    ordered = np.unique(value)
    best, cut, below = 0.0, math.nan, True
    for limit in (ordered[1:] + ordered[:-1]) / 2:
        gain = float((value[event] < limit).mean() - (value[~event] < limit).mean())
        if abs(gain) > best:
            best, cut, below = abs(gain), float(limit), gain > 0
    if math.isnan(cut):
        return None
    hit = (value < cut) if below else (value > cut)
    caught, false = int(hit[event].sum()), int(hit[~event].sum())
    least, most = wilson_interval(caught, int(event.sum())), wilson_interval(false, int((~event).sum()))
    if least.low <= most.high:
        return None
    limit = 10**cut if scale else cut
    source = (
        f"table {EXPERIMENT.name}: it flags {caught} of {least.n} runs that collapsed and {false} of "
        f"{most.n} others, in the table that it was chosen from"
    )
    return Threshold(metric, limit, below, source, scale=scale)


def early(rows: Sequence[Row], thresholds: Sequence[Threshold]) -> list[Alert]:
    """Return what the learned limits say of the metric's mean over a log's first EARLY steps, as learned."""
    return alerts(_means(rows, thresholds), thresholds)


def _means(rows: Sequence[Row], thresholds: Sequence[Threshold]) -> list[dict[str, float]]:
    if not rows:
        return []
    first = rows[0]["step"]
    some = [row for row in rows if row["step"] - first <= EARLY]
    found: dict[str, float] = {"step": some[-1]["step"]}
    for each in thresholds:
        values = np.array([row.get(each.metric, math.nan) for row in some])
        values = values[np.isfinite(values) & ((values > 0) | (each.scale == ""))]
        if values.size:
            found[each.metric] = float(10 ** np.log10(values).mean() if each.scale else values.mean())
    for name in ("rollout_corr/ess_floor", "rollout_corr/ess_floor_token"):
        if name in some[0]:
            found[name] = min(row[name] for row in some)
    return [found]
