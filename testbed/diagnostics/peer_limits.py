"""Limits on metrics documented by other stacks, and the steps at which a run crosses them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.registry import table_rows

Row = Mapping[str, float]


@dataclass(frozen=True)
class Threshold:
    """A documented limit: metric, side that warns (below or above), source, and its name for the metric."""

    metric: str
    limit: float
    below: bool
    source: str
    key: str = ""
    scale: str = ""
    """Factor that converts log10 to nats, for means over steps of logarithms."""


PEERS = tuple(
    Threshold(row["metric"], float(row["limit"]), row["side"] == "below", row["source"], row["key"])
    for row in table_rows(__file__, "limits")
)
"""Limits that other stacks document. PSIS's limit on Pareto-k depends on n and comes with the tails."""


@dataclass(frozen=True)
class Alert:
    """Result for one threshold: the first step that crosses it, the number of such steps, the worst value."""

    threshold: Threshold
    first: float
    crossed: int
    steps: int
    worst: float
    note: str = ""

    @property
    def fired(self) -> bool:
        """True if it was crossed at any step."""
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
    """Return an alert for every threshold with a metric in the rows; those that fired come first."""
    found = [alert for each in thresholds if (alert := _alert(rows, each)) is not None]
    return sorted(found, key=lambda alert: not alert.fired)


def _alert(rows: Sequence[Row], threshold: Threshold) -> Alert | None:
    numbers = ((row["step"], row.get(threshold.metric, math.nan)) for row in rows)
    known = [(step, value) for step, value in numbers if not math.isnan(value)]
    if not known:
        return None
    sign = 1.0 if threshold.below else -1.0
    crossed = [(step, value) for step, value in known if sign * value < sign * threshold.limit]
    worst = min((value for _, value in known), key=lambda value: sign * value)
    return Alert(
        threshold, crossed[0][0] if crossed else math.nan, len(crossed), len(known), worst,
        _floor(rows, threshold),
    )  # fmt: skip


def _floor(rows: Sequence[Row], threshold: Threshold) -> str:
    """Say if a sampled ESS of so few sequences cannot fall below the limit."""
    if "/ess_" not in threshold.metric:
        return ""
    name = "rollout_corr/ess_floor" + ("" if "sequence" in threshold.metric else "_token")
    floor = min((row[name] for row in rows if name in row), default=0.0)
    if not floor >= threshold.limit:
        return ""
    return f"it can never fire: the smallest value of N sequences is 1/N = {floor:.2g}"
