"""Learn limits that predict collapse from a committed table, and apply them to a training log."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.experiments.lag.phase_diagram import EARLY, PREDICTED, SIGNS
from analysis.judging.seed_intervals import wilson_interval
from analysis.tables.committed import COMMITTED, load_committed
from testbed.diagnostics.peer_limits import Alert, Row, Threshold, alerts
from testbed.errors import UserError

LOGGED = (
    "rollout_corr/ess_kish_sequence_raw",
    "rollout_corr/ess_max_sequence_raw",
    "rollout_corr/kl_mu_pi_k3",
)
"""Metrics behind the early signs that are in every log of tokens."""


def learned(folder: Path = COMMITTED) -> tuple[tuple[Threshold, ...], str]:
    """Return the limits that best separate collapsing runs in the committed table of signs, and a sentence.

    For every sign in a log of tokens, take the limit with the largest Youden index (Youden 1950): the share
    of collapsing runs that it flags minus the share of others. Its Wilson intervals must exclude chance, so
    the lowest true positive share must exceed the highest false positive one. Without the table there are no
    limits.
    """
    try:
        table = load_committed([PREDICTED.name], folder)[PREDICTED.name].frame
    except UserError:
        said = f"The table {PREDICTED.name} is not among the committed ones"
        return (), f"{said}: no limits from this laboratory."
    found = [
        each
        for name, (metric, scale) in SIGNS.items()
        if metric in LOGGED
        and (each := _youden(table, name, metric, "log10" if scale is not None else "")) is not None
    ]
    runs, lost = len(table), int(table["collapsed"].astype(bool).sum())
    said = f"{runs} runs of a toy language model, {lost} collapsed after step {EARLY}"
    return tuple(found), f"From table {PREDICTED.name}: {said}; the metric's mean over steps 1 to {EARLY}."


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
        f"table {PREDICTED.name}: it flags {caught} of {least.n} runs that collapsed and {false} of "
        f"{most.n} others, in the table that it was chosen from"
    )
    return Threshold(metric, limit, below, source, scale=scale)


def early(rows: Sequence[Row], thresholds: Sequence[Threshold]) -> list[Alert]:
    """Apply the learned limits to the metrics' means over a log's first EARLY steps after step 0.

    Step 0 is left out as in the table: it is always on-policy. A log of one step is read as it is.
    """
    return alerts(_means(rows, thresholds), thresholds)


def _means(rows: Sequence[Row], thresholds: Sequence[Threshold]) -> list[dict[str, float]]:
    if not rows:
        return []
    first = max(rows[0]["step"], 1)
    some = [row for row in rows if first <= row["step"] < first + EARLY] or rows[:1]
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
