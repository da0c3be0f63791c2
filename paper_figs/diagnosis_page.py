"""Write a log's diagnosis as one self-contained HTML page; every string is escaped."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from matplotlib.figure import Figure

from analysis.logs.diagnosis import Diagnosis
from analysis.palette import BLUE, GRAY, RULE, VERMILION
from paper_figs.figure_registry import PAGE
from paper_figs.report_page import _figure, _list, _svg, _table, document
from paper_figs.save_figures import style
from testbed.diagnostics.peer_limits import Alert

ESS_NOTE = (
    "Shares of N. No sampled share is below 1/N, however few samples carry the estimate: a share at its "
    "floor only says that the ESS is small. Prefix: ratios of all tokens up to each one."
)
TAIL_NOTE = (
    "Pareto-k of Vehtari et al. (2024), for independent weights of a continuous distribution; flat: "
    "the largest weights are equal; too few: fewer than five distinct weights above the cutoff."
)
CUT_NOTE = (
    "Effective weight of every token, as a factor on what the same objective gives it on-policy. cut: "
    "factor 0; down: less than half; up: more than twice; shares of the tokens with an on-policy weight. "
    "positive_share: share of all gradient mass that raises probabilities."
)
SPLIT_NOTE = (
    "log pi/mu = log anchor/mu + log pi/anchor. The first part is mismatch of the engines alone where the "
    "anchor has the sampler's weights; an anchor of newer weights leaves staleness in it, and the table by "
    "age says how much."
)


def page(found: Diagnosis) -> str:
    sections = {
        "Verdict": _paragraph(found.verdict),
        "What was read": _table(
            [{"what": name, "value": _word(value)} for name, value in found.facts.items()]
        ),
        "Dropped or assumed": _list(found.notes or ["Nothing."]),
        "Looks wrong": _list(found.doubts or ["Nothing found."]),
    }
    if found.scalars:
        sections |= {"Metrics": _rows(found.scalars), "Early warnings": _warnings(found)}
    if found.ratios:
        shown = [{"number": n, "value": v} for n, v in found.ratios.items() if "/kl_" in n or "/chi2_" in n]
        text = _rows(shown)
        if found.split:
            text += "<h3>Mismatch against staleness</h3>" + _paragraph(SPLIT_NOTE)
            text += _rows([{"number": n, "value": v} for n, v in found.split.items()])
        sections |= {
            "Early warnings": _warnings(found),
            "Effective sample size": _paragraph(ESS_NOTE) + _rows(found.ess_rows()),
            "Tails": _paragraph(TAIL_NOTE) + _rows(found.tail_rows()),
            "Divergence": text,
            "Drift over steps": _drift(found),
            "Age": _ages(found),
            "Objectives": _objectives(found),
        }
    return document(f"Log of {found.facts['written by']}", sections)


def _word(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3g}"
    return "" if value is None else str(value)


def _rows(rows: Iterable[Mapping[str, Any]]) -> str:
    return _table([{name: _word(value) for name, value in row.items()} for row in rows])


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _warnings(found: Diagnosis) -> str:
    fired = [alert for alert in found.peers if alert.fired]
    quiet = [alert for alert in found.peers if not alert.fired]
    parts = [
        "<h3>At limits that peers document</h3>",
        _alerts(fired) if fired else "<p>None was crossed.</p>",
    ]
    if quiet:
        parts.append(
            f"<details><summary>{len(quiet)} limits that were never "
            f"crossed</summary>{_alerts(quiet)}</details>"
        )
    parts.append("<h3>At limits from the committed tables</h3>")
    if found.laboratory:
        parts.append(_alerts(found.laboratory))
    return "".join([*parts, _paragraph(found.laboratory_note)])


def _alerts(alerts: Sequence[Alert]) -> str:
    return _rows([alert.plain() for alert in alerts])


def _drift(found: Diagnosis) -> str:
    """Return ESS, KL and quantiles against the step, if the log has several steps."""
    if len(found.steps) < 2:
        return "<p>The log has one step, so there is no drift to draw.</p>"
    panels = (
        ("ESS (share of N)", "rollout_corr/ess_kish_sequence_raw", "rollout_corr/ess_floor", True),
        ("ESS of tokens", "rollout_corr/ess_kish_token_raw", "", False),
        ("KL(mu, pi), k3", "rollout_corr/kl_mu_pi_k3", "", False),
        ("log W, p99", "rollout_corr/log_rho_sequence_p99", "", False),
    )
    with style():
        fig = Figure(figsize=(PAGE, 3.6), layout="constrained")
        for ax, (label, name, floor, log) in zip(fig.subplots(2, 2, sharex=True).flat, panels, strict=True):
            step = [row["step"] for row in found.steps]
            ax.plot(
                step, [row[name] for row in found.steps], color=BLUE, marker="." if len(step) < 40 else ""
            )
            if floor:
                ax.plot(step, [row[floor] for row in found.steps], color=GRAY, ls="--", label="floor 1/N")
                ax.legend()
            if log:
                ax.set_yscale("log")
            ax.set_title(label, loc="left")
        for ax in fig.axes[2:]:
            ax.set_xlabel("step")
        svg = _svg(fig, "drift", "Drift over steps")
    columns = (
        "reward/mean",
        "response_length/mean",
        "rollout_corr/ess_kish_sequence_raw",
        "rollout_corr/kl_mu_pi_k3",
    )
    shown = [{"step": row["step"], **{name: row[name] for name in columns}} for row in _thinned(found.steps)]
    return _figure(svg, "Every step's batch by itself.") + _rows(shown)


def _thinned(rows: Sequence[Mapping[str, float]], most: int = 12) -> list[Mapping[str, float]]:
    """Return at most this many rows, evenly spaced, including the last."""
    if len(rows) <= most:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]


def _ages(found: Diagnosis) -> str:
    if not found.ages:
        return "<p>Versions are not logged for every token.</p>"
    with style():
        fig = Figure(figsize=(PAGE, 2.2), layout="constrained")
        left, right = fig.subplots(1, 2)
        age = [row["age"] for row in found.ages]
        left.bar(age, [row["tokens"] for row in found.ages], color=BLUE, width=0.8)
        right.plot(age, [row["kl_mu_pi_k3"] for row in found.ages], color=VERMILION, marker=".")
        right.axhline(0, color=RULE, lw=0.6, zorder=0)
        for ax, title in ((left, "tokens"), (right, "KL(mu, pi), k3")):
            ax.set_title(title, loc="left")
            ax.set_xlabel("age, versions")
        svg = _svg(fig, "ages", "Tokens and KL by age")
    note = "Mismatch of the engines remains at age 0; staleness grows with age."
    return _figure(svg, note) + _rows(found.ages)


def _objectives(found: Diagnosis) -> str:
    if not found.objectives:
        return "<p>No objective was applied.</p>"
    return _paragraph(CUT_NOTE) + _rows(found.objectives)
