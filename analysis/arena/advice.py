"""Recommend a method for a measured drift: the arena's table, read at the drift of a training log."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.arena.table import records, roomy
from analysis.kernels.on_use import torch
from testbed.errors import UserError

if TYPE_CHECKING:
    from testbed.logs.record import Log

FACTOR = 3.0
"""Factor in KL within which cells of the table count as evidence for a log."""
CLIP = 0.2
"""Clip at which the clip share of a log is measured."""
SHOWN = 5


@dataclass(frozen=True)
class Drift:
    """Means over the steps of a log. kl: KL(mu, pi) per token, k3, nats. ess: Kish, sequences, share of N.

    clip_share: tokens that PPO's clip at CLIP cuts, of those with an advantage that is not 0; NaN without
    advantages. age: versions; NaN where nobody wrote them.
    """

    kl: float
    ess: float
    clip_share: float
    age: float
    steps: int
    tokens: int


@dataclass(frozen=True)
class Advice:
    """Rows of the table near a drift.

    inside: whether the table has cells at this KL. low, high: the range of KL that the table covers. rows:
    best methods, best first, each with its loss against fresh data. cells: the evidence. says: sentences.
    """

    drift: Drift
    inside: bool
    low: float
    high: float
    rows: list[dict[str, Any]]
    cells: list[dict[str, Any]]
    says: list[str]


def drift_of(log: Log) -> Drift:
    """Return the drift of a training log; raise UserError if it lacks log-probabilities or finite ratios."""
    from testbed.logs.log_tensors import tensors
    from testbed.logs.measure import by_step

    tokens = tensors(log)
    steps = by_step(log)
    kl_N = np.array([row["rollout_corr/kl_mu_pi_k3"] for row in steps])
    ess_N = np.array([row["rollout_corr/ess_kish_sequence_raw"] for row in steps])
    if not np.isfinite(kl_N).any():
        raise UserError(
            "The log has no step with a finite KL between sampler and trainer, so no drift can be matched."
        )
    ratio_N, share, age = tokens.log_rho_N.exp(), math.nan, math.nan
    if tokens.adv_N is not None:
        weighs_N = tokens.mask_N & (tokens.adv_N != 0)
        cut_N = torch.where(tokens.adv_N > 0, ratio_N > 1 + CLIP, ratio_N < 1 - CLIP) & weighs_N
        share = float(cut_N.sum() / weighs_N.sum()) if bool(weighs_N.any()) else math.nan
    if tokens.age_N is not None:
        age = float(tokens.age_N[tokens.mask_N].mean())
    finite_N = np.isfinite(kl_N)
    return Drift(
        float(kl_N[finite_N].mean()),
        float(np.nanmean(ess_N)),
        share,
        age,
        len(steps),
        int(tokens.mask_N.sum()),
    )


def advise(drift: Drift, frame: pd.DataFrame, guessed: bool = False) -> Advice:
    """Return the methods that lose least against fresh data where GRPO's KL is within FACTOR of the log's.

    The first run's seeds give the order and the replication's seeds give loss and interval, so choosing the
    best of many does not bias them.

    Args: drift: of a log. frame: `table.load()`. guessed: True if the rate cannot be tuned; the order is
    then by the loss at a rate off by a factor of 3, which has two seeds per cell and no interval.

    Raises UserError for a table without stale data on a task with headroom.
    """
    stale = frame[(frame["arm"] == "grpo") & (frame["lag"] > 0) & frame["task"].isin(roomy(frame))]
    cells = stale.groupby(["task", "lag"], sort=False)[["kl", "ess"]].mean().reset_index()
    if cells.empty:
        raise UserError("The arena's table has no stale data on a task with headroom; run the arena first.")
    low, high = cells["kl"].min() / FACTOR, cells["kl"].max() * FACTOR
    near = cells[cells["kl"].between(drift.kl / FACTOR, drift.kl * FACTOR)]
    span = f"{low:.3g} to {high:.3g} nats per token"
    if near.empty:
        where = "below" if drift.kl < low else "above" if drift.kl > high else "between"
        says = [f"KL of the log is {drift.kl:.3g}, {where} what the table covers ({span}): no advice."]
        if where == "below":
            says.append(
                "Its least stale cells drift more. For the cost of small lags see docs/findings.md, 1."
            )
        return Advice(drift, False, low, high, [], [], says)
    losses = _losses(frame, near)
    rows = [_row(arm, part, near) for arm, part in losses.groupby("arm", sort=False)]
    compared = [row for row in rows if row["tasks"] == len(near)]
    others, rows = len(rows) - len(compared), compared
    order = [row.pop("first") for row in rows]
    order = [row["wrong rate"] for row in rows] if guessed else order
    rows = [rows[place] for place in np.argsort(order, kind="stable")]
    kept = [row for place, row in enumerate(rows) if place < SHOWN or row["arm"] == "grpo"]
    return Advice(drift, True, low, high, kept, records(near), _says(drift, kept, span, guessed, others))


def _losses(frame: pd.DataFrame, near: pd.DataFrame) -> pd.DataFrame:
    """Return a row per cell, arm and seed: fresh data's final accuracy minus the arm's, at its rate and at a
    wrong one.
    """
    grpo = frame[frame["arm"] == "grpo"]
    fresh = grpo[grpo["lag"] == 0].set_index(["task", "seed"])["final"].rename("fresh")
    rate = grpo.groupby(["task", "lag"])["rate"].first().rename("grpo_rate")
    rows = frame[frame["arm"] != "placebo"].merge(near[["task", "lag"]], on=["task", "lag"])
    rows = rows.join(fresh, on=["task", "seed"]).join(rate, on=["task", "lag"])
    return rows.assign(
        loss=rows["fresh"] - rows["final"],
        wrong=rows["fresh"] - rows["off_rate"],
        factor=rows["rate"] / rows["grpo_rate"],
    ).dropna(subset=["loss"])


def _row(arm: object, rows: pd.DataFrame, near: pd.DataFrame) -> dict[str, Any]:
    """Return an arm's settings and its loss, the mean over cells, with a 95 % interval over seeds."""
    from scipy.stats import t

    cells = [part for _, part in rows.groupby(["task", "lag"])]
    again = [part.loc[part["run"] == "replication", "loss"].to_numpy() for part in cells]
    first = [part.loc[part["run"] == "first", "loss"].mean() for part in cells]
    knobs = Counter(part["knob"].iloc[0] for part in cells).most_common()
    done = sum(len(loss_N) > 1 for loss_N in again)
    row = {"arm": str(arm), "tasks": done, "first": float(np.mean(first))}
    if done < len(near):
        return row
    center = float(np.mean([loss_N.mean() for loss_N in again]))
    error = math.sqrt(sum(loss_N.var(ddof=1) / len(loss_N) for loss_N in again)) / done
    half = float(t.ppf(0.975, min(len(loss_N) for loss_N in again) - 1)) * error
    factors = [part["factor"].iloc[0] for part in cells]
    return row | {
        "loss": center,
        "low": center - half,
        "high": center + half,
        "wrong rate": float(np.mean([part["wrong"].mean() for part in cells])),
        "rate / GRPO's": f"{min(factors):.2g}"
        + (f" to {max(factors):.2g}" if max(factors) > min(factors) else ""),
        "knob": "; ".join(f"{knob} in {count}" for knob, count in knobs),
    }


def _says(drift: Drift, rows: list[dict[str, Any]], span: str, guessed: bool, others: int) -> list[str]:
    if not rows:
        return [
            "No method has run, with its replication, in every cell at this drift, so there is no advice."
        ]
    best = rows[0]
    even = [] if guessed else [row["arm"] for row in rows[1:] if row["low"] <= best["high"]]
    which = "best if the rate is a guess" if guessed else "best"
    found = [
        f"At KL {drift.kl:.3g} the table's {which} is {best['arm']}: it loses {best['loss']:.2f} "
        f"({best['low']:.2f} to {best['high']:.2f}) of accuracy against fresh data, and "
        f"{best['wrong rate']:.2f} (two seeds a cell) when the rate is off by a factor of 3."
    ]
    if even:
        found.append(f"Intervals do not separate it from {', '.join(even)}.")
    if others:
        found.append(
            f"Compared are recipes that ran in all {best['tasks']} cells at this drift; {others} others "
            "ran in some: testbed arena show."
        )
    return [
        *found,
        f"Valid for KL {span}, measured on a transformer of 7,000 weights and answers of at most a few "
        "dozen tokens; larger models were not tested. ESS falls with the length of answers, so KL is what is "
        "matched.",
    ]
