"""Compare the arms of any sweep with a baseline: paired by seed, corrected for multiple comparisons.

from analysis.sweeps.sweep_comparison import compare
compare(load("results/mine"), by="recipe", baseline="grpo", metric="final_accuracy")
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from analysis.judging.comparisons import arm, paired
from analysis.judging.seed_intervals import Interval, student_interval, wilson_interval
from analysis.kernels.t_test_seeds import t_seeds
from analysis.sweeps.sweep_table import (
    labeled,
    metric_word,
    named,
    per_cell,
    setting,
    settings,
    telling,
    usual_axis,
    usual_metric,
)
from analysis.tables.outcomes import ACCURACY
from testbed.errors import UserError, unknown

USUAL = "grpo"
MISSED = 0.2
"""Chance that the suggested number of seeds does not decide a difference as large as the observed one."""
ROUNDING = 1e-12
"""Relative difference of two cells up to which they are equal."""
ARM, SETTING = "(arm)", "(setting)"


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Return Holm's adjusted p-values: max over j <= i of (m - j + 1) p_(j), at most 1 (Holm 1979)."""
    adjusted, largest = {}, 0.0
    for index, name in enumerate(sorted(p, key=lambda name: (p[name], name))):
        largest = max(largest, min(1.0, (len(p) - index) * p[name]))
        adjusted[name] = largest
    return adjusted


def compare(
    rows: pd.DataFrame, by: str = "", baseline: str = "", metric: str = "", alpha: float = 0.05
) -> pd.DataFrame:
    """Return a row per arm and setting, against the baseline in the same setting, over the seeds both have.

    setting: what else varies, as "lag 16". seeds: pairs; left_out: seeds without a partner or a number.
    mean, low_mean, high_mean: of the arm; baseline_mean. difference: mean of arm less baseline, with its 95%
    interval low, high (Student's t on paired differences); spread: their standard deviation.
    p: two-sided; p_holm: corrected (Holm 1979) for all rows. verdict: higher or lower where p_holm <= alpha,
    equal where all pairs are, both 0 where no run of either left 0, else undecided.
    higher: probability of improvement P(arm > baseline) (Agarwal et al. 2021, arXiv:2108.13264), ties
    counting half, with higher_low and higher_high of `improvement`.
    collapsed: share of seeds, with collapsed_low and collapsed_high (Wilson), and baseline_collapsed; NaN
    without an accuracy. seeds_needed: about how many would decide a difference and spread like these with
    power 0.8 at alpha over the number of rows (Student's t); NaN where it is decided.

    Args:
        rows: of `analysis.sweeps.sweep_table.load`.
        by: the setting whose values are the arms; by default the first that varies, recipe before lag.
        baseline: one of them; by default grpo, else the first.
        metric: as `metric_word` takes it; by default the usual one of these results.
        alpha: chance of one false verdict in the whole table.

    Raises:
        UserError: an unknown setting, metric or baseline; fewer than two arms; no pair of seeds.
    """
    by, metric = setting(rows, by) if by else usual_axis(rows), metric or usual_metric(rows)
    metric_word(rows, metric)
    others = [name for name in telling(rows, [by, *(n for n in settings(rows) if n != by)]) if name != by]
    cells = per_cell(rows, metric, [by, *others])
    if ACCURACY in rows:
        cells["collapsed"] = per_cell(rows, "collapsed", [by, *others])["collapsed"]
    cells[ARM], names = labeled(cells, [by])
    cells[SETTING], combinations = labeled(cells, others)
    first = _baseline(names, baseline, by)
    pairs = [(combination, name) for combination in combinations for name in names if name != first]
    found = [_row(cells, metric, combination, name, first) for combination, name in pairs]
    table = pd.DataFrame([row for row in found if row["seeds"]])
    if table.empty:
        raise UserError(f"No seed was run both with {first} and with another {by}, so nothing can be paired.")
    adjusted = holm({str(index): p for index, p in enumerate(table["p"])})
    table["p_holm"] = [adjusted[str(index)] for index in range(len(table))]
    table["verdict"] = [_verdict(row, alpha) for row in table.to_dict("records")]
    table["seeds_needed"] = [_needed(row, alpha / len(table)) for row in table.to_dict("records")]
    return table


def _baseline(names: list[str], given: str, by: str) -> str:
    if len(names) < 2:
        raise UserError(f"All cells have {by} {names[0]}; a comparison needs two values. Name another --by.")
    if not given:
        return USUAL if USUAL in names else names[0]
    if given in names:
        return given
    by_value = {name.rpartition(" ")[2]: name for name in names}
    try:
        return by_value[named("baseline", given, by_value)]
    except UserError:
        raise unknown("baseline", given, names) from None


def _row(cells: pd.DataFrame, metric: str, setting: str, name: str, baseline: str) -> dict[str, Any]:
    """Return one arm's row in one setting, without the corrections that depend on other rows."""
    ours, theirs = ({ARM: each, SETTING: setting} for each in (name, baseline))
    both = pd.DataFrame({"x": arm(cells, metric, ours), "y": arm(cells, metric, theirs)})
    kept = both.dropna()
    # Two ways of adding up to the same number are no difference.
    alike = (kept["x"] - kept["y"]).abs() <= ROUNDING * kept["y"].abs()
    kept = kept.assign(x=kept["x"].mask(alike, kept["y"]))
    start = {"setting": setting, "arm": name, "baseline": baseline, "seeds": len(kept)}
    if kept.empty:
        return start
    less = np.where(alike, 0.0, paired(cells, metric, ours, theirs))
    gap = _gap(less)
    mean = student_interval(kept["x"].to_numpy())
    higher = improvement(kept["x"].to_numpy(), kept["y"].to_numpy())
    return {
        **start,
        "left_out": len(both) - len(kept),
        "mean": mean.center,
        "low_mean": mean.low,
        "high_mean": mean.high,
        "baseline_mean": float(kept["y"].mean()),
        "difference": gap.center,
        "low": gap.low,
        "high": gap.high,
        "p": _p(less),
        "spread": float(less.std(ddof=1)) if len(less) > 1 else math.nan,
        "higher": higher.center,
        "higher_low": higher.low,
        "higher_high": higher.high,
        **_collapse(cells, ours, theirs),
    }


def _gap(x_N: NDArray[np.float64]) -> Interval:
    """Return the mean with Student's interval, which is unbounded for one unit or equal ones."""
    # Rounding of equal differences would pass for a spread and make t as large as one likes.
    if x_N.size < 2 or np.ptp(x_N) <= 1e-12 * float(np.abs(x_N).max()):
        return Interval(float(x_N.mean()), -math.inf, math.inf, x_N.size, "none", 0.95)
    return student_interval(x_N)


def _p(x_N: NDArray[np.float64]) -> float:
    """Return the p of Student's t test that the mean is 0; 1 for one unit or equal ones."""
    if x_N.size < 2 or np.ptp(x_N) <= 1e-12 * float(np.abs(x_N).max()):
        return 1.0
    return float(stats.ttest_1samp(x_N, 0.0).pvalue)


def _collapse(cells: pd.DataFrame, ours: dict[str, str], theirs: dict[str, str]) -> dict[str, float]:
    if "collapsed" not in cells:
        return dict.fromkeys(("collapsed", "collapsed_low", "collapsed_high", "baseline_collapsed"), math.nan)
    lost, lost_there = (arm(cells, "collapsed", where) for where in (ours, theirs))
    share = wilson_interval(int(lost.sum()), len(lost))
    return {
        "collapsed": share.center,
        "collapsed_low": share.low,
        "collapsed_high": share.high,
        "baseline_collapsed": float(lost_there.mean()),
    }


def improvement(x_N: NDArray[np.float64], y_N: NDArray[np.float64], level: float = 0.95) -> Interval:
    """Return P(X > Y) + P(X = Y)/2 over all pairs of seeds, and its interval, which is proper at 0 and 1 too.

    The bounds are the theta with |estimate - theta| = z sqrt(V(theta)), n^2 V = theta (1 - theta) (1 + (n -
    1) ((1 - theta)/(2 - theta) + theta/(1 + theta))). Source: Newcombe (2006), Statistics in Medicine 25,
    559-573, method 5. It treats the arms as independent; with pairing the true interval is mostly narrower.
    """
    n, z = len(x_N), float(special.ndtri(0.5 + level / 2))
    above_NN = (x_N[:, None] > y_N) + 0.5 * (x_N[:, None] == y_N)
    center = float(above_NN.mean())

    def beyond(theta: float) -> float:
        more = (n - 1) * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return (center - theta) ** 2 - z**2 * theta * (1 - theta) * (1 + more) / n**2

    low = 0.0 if center == 0 else _root(beyond, 0.0, center)
    high = 1.0 if center == 1 else _root(beyond, 1.0, center)
    return Interval(center, low, high, n, "Newcombe, method 5", level)


def _root(function: Callable[[float], float], outside: float, inside: float) -> float:
    """Return, by bisection, where a function changes sign from positive outside to negative inside."""
    for _ in range(60):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if function(middle) > 0 else (outside, middle)
    return (outside + inside) / 2


def _verdict(row: Mapping[Any, Any], alpha: float) -> str:
    if row["difference"] == 0 and row["spread"] == 0:
        return "both 0" if row["mean"] == row["baseline_mean"] == 0 else "equal"
    if row["p_holm"] > alpha:
        return "undecided"
    return "higher" if row["difference"] > 0 else "lower"


def _needed(row: Mapping[Any, Any], alpha: float) -> float:
    """Return the number of seeds that would decide; NaN if not needed, or if the spread is unknown."""
    if row["verdict"] != "undecided" or not row["spread"] > 0 or row["difference"] == 0:
        return math.nan
    seeds = t_seeds(row["difference"], row["spread"], alpha, 1 - MISSED)
    return math.inf if seeds is None else float(max(seeds, row["seeds"] + 1))


def in_words(row: Mapping[Any, Any], by: str, metric: str) -> dict[str, Any]:
    """Format a row of `compare` for a table: each interval follows its center."""
    less = f"less {row['baseline']}"
    found = {
        "setting": row["setting"],
        by: row["arm"],
        "seeds": f"{row['seeds']} of {row['seeds'] + row['left_out']}" if row["left_out"] else row["seeds"],
        metric: f"{row['mean']:.3g}",
        less: between(row["difference"], row["low"], row["high"], "+.3g"),
        "p (Holm)": f"{row['p_holm']:.2g}",
        "verdict": row["verdict"],
        "P(higher)": between(row["higher"], row["higher_low"], row["higher_high"], ".2f"),
        "collapsed": between(row["collapsed"], row["collapsed_low"], row["collapsed_high"], ".2f"),
        "seeds needed": "" if math.isnan(row["seeds_needed"]) else f"{row['seeds_needed']:.0f}",
    }
    if not row["setting"]:
        del found["setting"]
    if math.isnan(row["collapsed"]):
        del found["collapsed"]
    return found


def between(center: float, low: float, high: float, form: str) -> str:
    """Return "0.12 [0.1, 0.2]", or the center alone without finite bounds."""
    bounds = f" [{low:{form}}, {high:{form}}]" if math.isfinite(low) and math.isfinite(high) else ""
    return f"{center:{form}}{bounds}"
