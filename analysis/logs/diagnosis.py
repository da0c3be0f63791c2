"""Diagnose a training log: everything that `testbed diagnose` prints, draws and writes as JSON."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from analysis.sweeps.early_warning import early, learned
from analysis.tables.committed import COMMITTED
from testbed.diagnostics.peer_limits import PEERS, Alert, alerts
from testbed.errors import UserError
from testbed.logs.record import Log
from testbed.logs.sanity_checks import suspicions, verdict
from testbed.logs.scalars import BLIND, ScalarLog, fall
from testbed.logs.scalars import verdict as verdict_of_scalars
from testbed.objectives import objective

Row = dict[str, Any]
LEVELS = ("token", "prefix", "sequence")


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of a log. ratios, tails, steps, ages, split are empty if log-probabilities are missing.

    facts: what was read. notes: what was dropped or assumed. doubts: what looks wrong. verdict: one line.
    ratios: metrics of all sequences together. tails: Pareto-k by level. steps: metrics by step. ages: by age
    in versions. split: mismatch against staleness. objectives: what each would cut or weigh down. peers,
    laboratory: alerts. scalars: by metric, where the log has numbers by step in place of tokens; steps then
    holds what was logged.
    """

    facts: Row
    notes: list[str]
    doubts: list[str]
    ratios: dict[str, float] = field(default_factory=dict)
    tails: dict[str, Row] = field(default_factory=dict)
    steps: list[dict[str, float]] = field(default_factory=list)
    ages: list[dict[str, float]] = field(default_factory=list)
    split: dict[str, float] = field(default_factory=dict)
    objectives: list[Row] = field(default_factory=list)
    peers: list[Alert] = field(default_factory=list)
    laboratory: list[Alert] = field(default_factory=list)
    laboratory_note: str = ""
    verdict: str = ""
    scalars: list[Row] = field(default_factory=list)

    def plain(self) -> Row:
        """Return everything as JSON-able values."""
        held = {**vars(self)}
        for name in ("peers", "laboratory"):
            held[name] = [
                {
                    **vars(alert.threshold),
                    **{k: v for k, v in vars(alert).items() if k != "threshold"},
                    "fired": alert.fired,
                }
                for alert in held[name]
            ]
        return held

    def ess_rows(self) -> list[Row]:
        """Return the ESS table: a row per level and kind of weights, with the floor."""
        if not self.ratios:
            return []
        rows = []
        for level in LEVELS:
            floor = self.ratios["rollout_corr/ess_floor" + ("" if level == "sequence" else "_token")]
            for which in ("raw", "clamped"):
                row: Row = {"over": level, "weights": "as they are" if which == "raw" else "bounded by 2"}
                row |= {
                    how: self.ratios[f"rollout_corr/ess_{how}_{level}_{which}"]
                    for how in ("kish", "perplexity", "max")
                }
                rows.append(row | {"floor 1/N": floor})
        return rows

    def tail_rows(self) -> list[Row]:
        """Return Pareto-k by level, or why there is none."""
        return [
            {
                "over": level,
                "N": found.get("n", 0),
                "k": found.get("k", found["outcome"]),
                "says": found["says"]
                + ("" if level == "sequence" else "; tokens of one sequence are not independent"),
            }
            for level, found in self.tails.items()
        ]


@np.errstate(over="ignore", invalid="ignore")  # logs may hold numbers as large as 1e300
def diagnose(
    log: Log | ScalarLog,
    objectives: list[str] | str | None = None,
    folder: Path = COMMITTED,
    weighing: contextlib.AbstractContextManager[Any] | None = None,
) -> Diagnosis:
    """Diagnose a log.

    Args: log: a training log, of tokens or of scalars. objectives: names, or one; all by default, [] for
    none. folder: the committed tables, for the limits learned from our experiments. weighing: context entered
    while the objectives' weights are computed, the slow part.

    Raises UserError for an unknown objective, or if the named objectives cannot be evaluated.
    """
    objectives = [objectives] if isinstance(objectives, str) else objectives
    if isinstance(log, ScalarLog):
        return _of_scalars(log, objectives, folder)
    if not isinstance(log, Log):
        raise UserError(f"diagnose got a {type(log).__name__}, expected a log; tb.read_log(paths) reads one.")
    from testbed.logs.clip_report import weigh
    from testbed.logs.log_tensors import tensors
    from testbed.logs.measure import age_rows, by_step, ratio_numbers, split, tails

    for name in objectives or ():
        _ = objective[name]  # an unknown name fails before anything is computed
    limits, said = learned(folder)
    notes = list(log.notes)
    try:
        tokens = tensors(log)
    except UserError as error:
        if objectives:
            raise UserError(f"{error} --model and --behavior-model recompute them.") from None
        notes.append(f"{error} Ratios cannot be computed; --model and --behavior-model recompute them.")
        return Diagnosis(_facts(log), notes, suspicions(log), laboratory_note=said, verdict=verdict(log))
    steps = by_step(log)
    rows: list[Row] = []
    try:
        if objectives != []:
            with weighing or contextlib.nullcontext():
                rows, more = weigh(log, objectives)
            notes += more
    except UserError as error:
        if objectives:
            raise UserError(f"No objective can be evaluated on these tokens: {error}") from None
        notes.append(f"No objective could be evaluated on these tokens: {error}")
    if objectives and not rows:
        raise UserError(" ".join(["None of the named objectives can be evaluated on this log.", *more]))
    peers = alerts(steps, PEERS)
    fired = [alert.threshold.metric for alert in peers if alert.fired]
    return Diagnosis(
        _facts(log), notes, suspicions(log), ratio_numbers(tokens), tails(tokens), steps, age_rows(tokens),
        split(tokens),
        rows, peers, early(steps, limits), said, verdict(log, fired),
    )  # fmt: skip


def _of_scalars(log: ScalarLog, objectives: list[str] | None, folder: Path) -> Diagnosis:
    """Diagnose scalar metrics by step against the limits of other stacks and of our experiments."""
    if objectives:
        raise UserError(f"Objectives are asked about tokens: {BLIND} Leave --objective out.")
    limits, said = learned(folder)
    found = log.alerts()
    steps = [int(row["step"]) for row in log.rows]
    facts: Row = {
        "written by": log.source,
        "holds": "scalars by step, no tokens",
        "steps": f"{steps[0]} to {steps[-1]} ({len(steps)})",
        "metrics known here": len(log.keys),
        "other keys": len(log.unread),
    }
    doubts = [fallen[0].upper() + fallen[1:] + "."] if (fallen := fall(log)) else []
    return Diagnosis(
        facts, [*log.notes, BLIND], doubts, steps=list(log.rows), peers=found,
        laboratory=early(log.rows, limits), laboratory_note=said,
        verdict=verdict_of_scalars(log, found), scalars=log.table(),
    )  # fmt: skip


def _facts(log: Log) -> Row:
    """Return the facts about the input: format, sizes, fields."""
    sizes: dict[str, int] = {}
    for one in log.sequences:
        sizes[one.group] = sizes.get(one.group, 0) + 1
    rewards = [one.reward for one in log.sequences if one.reward is not None]
    lengths = [one.length for one in log.sequences]
    held = [
        name
        for name in ("logp_mu", "logp_pi", "logp_anchor", "version", "advantage", "reward")
        if log.has(name)
    ]
    return {
        "written by": log.source,
        "sequences": len(log.sequences),
        "tokens of the policy": sum(lengths),
        "steps": f"{log.steps[0]} to {log.steps[-1]} ({len(log.steps)})",
        "groups": len(sizes),
        "sequences per group": float(np.median(list(sizes.values()))),
        "mean length": float(np.mean(lengths)),
        "mean reward": float(np.mean(rewards)) if rewards else None,
        "of every sequence": ", ".join(held) or "none of mu, pi, anchor, version, advantage, reward",
    }
