"""Replications of simulated pipelines, which claims compare with closed forms.

`python -m paper_figs.theory replications` writes the table. A replication is a stream of random numbers;
every pipeline meets the same streams, so that rows of one replication may be compared as pairs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.load import Table

if TYPE_CHECKING:
    from testbed.pipeline.design import Design

NAME = "pipeline-replications"
REPLICAS = 8
VALUES = (
    "period",
    "lag_sample",
    "lag_token",
    "length_generated",
    "length_trained",
    "length_bias",
    "drop_rate",
)
COLUMNS = ("claim", "pipeline", "replica", *VALUES)
BARRIER = {"admission": "capacity", "barrier": True, "queue_rule": "block"}
LAWS = {
    "no groups": {"group": 1, "sigma": 0.5},
    "groups of 4": {"group": 4, "sigma": 0.35},
    "correlated groups of 8": {"group": 8, "correlation": 0.5},
}
"""Laws of response lengths under which in-flight updates are looked at."""


def base(**fields: Any) -> Design:
    """Return 240 slots, batches of 240 = 30 groups of 8 that take 20 s to generate, some fields replaced."""
    from testbed.pipeline.design import Design

    return replace(Design(slots=240, batch=240, train_time=15.0, queue_rule="drop-oldest"), **fields)


def periods() -> dict[str, Design]:
    """Pipelines of three kinds: one after the other, one step off, streaming."""
    whole = base(**BARRIER, tau_1=1e-4, sync_time=2.0)
    found = {"synchronous": whole}
    found |= {f"one step off, T_tr {t:g}": replace(whole, eta=1, train_time=t) for t in (5.0, 160.0)}
    return found | {f"streaming, T_tr {t:g}": base(train_time=t) for t in (5.0, 15.0, 30.0)}


def mean_lags() -> dict[str, Design]:
    """Streaming pipelines by utilization u; "beyond" is outside the range of the closed form."""
    found = {
        f"{c} slots, T_tr {t:g}": base(slots=c, train_time=t * 240 / c, queue=4)
        for c in (120, 240, 480)
        for t in (5.0, 15.0)
    }
    found |= {f"u = {u:g}": base(train_time=20 * u) for u in (1.1, 1.5, 2.0)}
    return found | {"beyond": base(train_time=60.0, queue=4)}


def in_flight() -> dict[str, Design]:
    """Pairs of pipelines that differ in whether running responses take new weights."""
    found: dict[str, Design] = {}
    for name, law in LAWS.items():
        late = base(**law, train_time=12.0, queue=4)
        found |= {f"{name}, late": late, f"{name}, in flight": replace(late, in_flight=True)}
    return found


def discards() -> dict[str, Design]:
    """A heavy tail of lengths with groups dropped by age, and with the oldest of a full queue dropped."""
    heavy: dict[str, Any] = {"sigma": 0.9, "length_mean": 1354.0, "train_time": 25.0}
    return {
        "by age": base(**heavy, max_age=1, queue_rule="block"),
        "full queue": base(**heavy | {"train_time": 40.0}),
    }


def pools(**fields: Any) -> dict[str, Design]:
    """One pool that generates, then trains, and its best split into two that work at once."""
    equal: dict[str, Any] = {"length": "fixed", "tau_1": 3e-4, "group": 8, "batch": 512, "queue": 4.0}
    equal |= {"queue_rule": "block"} | fields
    whole = base(**equal | BARRIER, slots=512, engines=32, pools="colocated", train_time=24.8 / 3)
    return {"whole": whole, "split": base(**equal, slots=384, engines=24, train_time=24.8 / 3 * 32 / 8)}


PIPELINES = {
    "pipeline-periods": (periods, 500),
    "pipeline-mean-lag": (mean_lags, 500),
    "in-flight-saves-half-a-response": (in_flight, 1000),
    "discard-stale-shortens-responses": (discards, 500),
    "stragglers-make-pipelining-pay": (lambda: pools(length="lognormal"), 120),
}
"""Claim -> its pipelines and the batches that a replication measures."""


def replications(claim: str, replicas: int = REPLICAS) -> pd.DataFrame:
    """Return a row per pipeline of the claim and replication; more of these leave the first as they are."""
    from testbed.pipeline.simulate import simulate_one

    make, batches = PIPELINES[claim]
    frames = []
    for name, design in make().items():
        found = simulate_one(design, replicas=replicas, batches=batches).value_R
        columns = {value: found[value] for value in VALUES}
        frames.append(pd.DataFrame({"claim": claim, "pipeline": name, "replica": range(replicas), **columns}))
    return pd.concat(frames, ignore_index=True)[list(COLUMNS)]


def table() -> Table:
    """Return the table of every claim's replications."""
    frame = pd.concat([replications(claim) for claim in PIPELINES], ignore_index=True)
    return Table.of(NAME, frame, {"replicas": REPLICAS, "seed": 0})
