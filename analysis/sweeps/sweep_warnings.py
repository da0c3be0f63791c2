"""Warnings that a reader of a sweep needs before believing its averages."""

import pandas as pd

from analysis.sweeps.sweep_table import gaps, labeled, settings, telling
from analysis.tables.outcomes import DIVERGED, ESS, ESS_FLOOR

NEAR = 1.05
"""A sampled ESS up to this many times its floor is at the floor."""
FEW = 6
"""With fewer seeds the range replaces the 95% interval of the median."""
GRADIENT, LIMIT, RATE = "actor/grad_norm", "max_grad_norm", "learning_rate"
NONFINITE = "rollout_corr/nonfinite"


def sweep_warnings(rows: pd.DataFrame) -> list[str]:
    """Return sentences about the ESS floor, limited gradients, divergence, gaps and too few seeds."""
    label, _ = labeled(rows, telling(rows, settings(rows)))
    found = []
    if ESS in rows and ESS_FLOOR in rows:
        reached = rows[ESS] <= NEAR * rows[ESS_FLOOR]
        found += _cells(
            rows, label, reached, "had a sequence ESS at its floor 1/N, where it carries no information"
        )
    if GRADIENT in rows and LIMIT in rows:
        limited = (rows[LIMIT] > 0) & (rows[GRADIENT] > rows[LIMIT])
        share = limited.groupby(label, sort=False).mean()
        active = [f"{name or 'all cells'} ({value:.0%})" for name, value in share.items() if value > 0]
        if active:
            found.append(f"The gradient limit was active at logged steps: {', '.join(active)}.")
    if DIVERGED in rows:
        found += _cells(rows, label, rows[DIVERGED] != 0, "diverged: a loss or a gradient was not finite")
    if NONFINITE in rows:
        found += _cells(rows, label, rows[NONFINITE] > 0, "had log-ratios that are not finite")
    missing = gaps(rows)
    if missing:
        shown = ", ".join(f"{name} ({count})" for name, count in list(missing.items())[:8])
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        found.append(f"Metrics that are not a number at some steps, with their cells: {shown}{more}.")
    seeds = rows.groupby(label)["seed"].nunique()
    if (fewest := int(seeds.min())) < FEW:
        found.append(
            f"Some settings have {fewest} seed{'s' if fewest > 1 else ''}: with fewer than {FEW}, bands of "
            "medians are ranges, and little can be decided."
        )
    return found


def _cells(rows: pd.DataFrame, label: pd.Series, wrong: pd.Series, what: str) -> list[str]:
    """Return one sentence with the number of affected cells per setting; nothing if there are none."""
    bad = rows.loc[wrong, "cell"].groupby(label[wrong], sort=False).nunique()
    if bad.empty:
        return []
    total = rows["cell"].nunique()
    where = ", ".join(f"{name or 'all cells'} ({count})" for name, count in bad.items())
    return [f"{int(bad.sum())} of {total} cells {what}: {where}."]
