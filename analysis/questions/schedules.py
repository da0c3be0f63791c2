"""Questions about queues and limits of age; the pipeline simulator answers, same streams for all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analysis.questions.question import Numbers, computed
from testbed.pipeline.design import Design

COLUMNS = {
    "answers / s": "samples_per_s",
    "mean lag": "lag_sample",
    "largest lag": "lag_largest",
    "dropped": "drop_rate",
    "length bias": "length_bias",
}
T_95 = 3.1824
"""97.5 % point of Student's t with 3 degrees of freedom."""


def _base() -> Design:
    return Design(slots=128, tau_0=0.02, length_mean=500.0, sigma=1.0, batch=64, group=8, train_time=5.0)


def _rows(designs: dict[str, Design]) -> list[dict[str, Any]]:
    """Return a row per rule: what the simulator measures, with 95 % intervals."""
    from testbed.pipeline.simulate import simulate

    found = simulate(list(designs.values()), replicas=4, batches=100)
    table: list[dict[str, Any]] = []
    for rule, report in zip(designs, found, strict=True):
        table.append({"rule": rule})
        for title, name in COLUMNS.items():
            mean, half = report.mean(name), T_95 * report.stderr(name)
            table[-1][title] = [mean, mean - half, mean + half]
    return table


@computed(2)
def drop_or_pace() -> Numbers:
    """Return speed, lag, drops and length bias of three rules."""
    base = _base()
    table = _rows(
        {
            "no limit": base,
            "drop above one": replace(base, max_age=1),
            "pace, one ahead": replace(base, admission="capacity", eta=1),
        }
    )
    return {"table": table}


@computed(18)
def order() -> Numbers:
    """Return speed, lag and drops by order, with and without a limit of age."""
    base = replace(_base(), queue=4.0, train_time=12.0)
    table = _rows(
        {
            "oldest first": base,
            "freshest first": replace(base, order="lifo"),
            "oldest first, limit 4": replace(base, max_age=4),
            "freshest first, limit 4": replace(base, order="lifo", max_age=4),
        }
    )
    return {"table": table}


@computed(19)
def counted_from() -> Numbers:
    """Return speed, lag and drops by the token that a limit is counted from."""
    base = replace(_base(), in_flight=True)
    return {
        "table": _rows(
            {
                f"limit {limit}, {which} token": replace(base, max_age=limit, age_of=which)
                for limit in (1, 4)
                for which in ("first", "last")
            }
        )
    }


@computed(31)
def zero() -> Numbers:
    """Return speed and lags of admission by capacity, none and one batch ahead, and of a barrier."""
    rules: dict[str, Design] = {}
    for eta, ahead in enumerate(("none", "one")):
        paced = replace(_base(), admission="capacity", eta=eta)
        rules |= {f"{ahead} ahead": paced, f"{ahead} ahead, barrier": replace(paced, barrier=True)}
    return {"table": _rows(rules)}
