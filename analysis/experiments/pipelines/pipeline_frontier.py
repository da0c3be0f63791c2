"""The table behind `pipeline-frontier`."""

from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.lab import Experiment, Plot
from analysis.tables.committed import Table
from testbed.pipeline.design import Design

NAME = "pipeline-frontier"
ACCELERATORS = 32
SLOTS = 16
"""Sequences on one accelerator."""
SECONDS = 1.0
"""Seconds in which one accelerator trains one sample."""
SHARES = tuple(range(6, 19))
"""Accelerators of a split's trainer; the best is kept."""
SIGMAS = (0.3, 1.0)
BATCHES = 60
COLUMNS = (
    "family",
    "setting",
    "sigma",
    "training",
    "lag_token",
    "lag_sample",
    "speed",
    "samples_per_s",
    "stderr",
)


def settings() -> list[tuple[str, str, dict[str, Any]]]:
    """Return family, setting and fields of every pipeline; `pools` says which have no split."""
    whole = {"admission": "capacity", "eta": 0, "pools": "colocated", "barrier": True}
    rows: list[tuple[str, str, dict[str, Any]]] = [("synchronous", "η=0", whole)]
    rows.append(("periodic", "32 pieces", {"admission": "capacity", "eta": 0, "pieces": 32}))
    rows += [
        ("capacity", f"η={n}", {"admission": "capacity", "eta": n, "queue": n + 1.0}) for n in (1, 2, 4, 8)
    ]
    rows += [
        ("threshold", f"s={s:g}", {"admission": "threshold", "threshold": s, "queue": 4.0})
        for s in (0.0, 0.1, 0.3, 0.5, 1.0)
    ]
    for flight, family in ((False, "drop-oldest"), (True, "in flight")):
        rows += [
            (family, f"q={q}", {"queue_rule": "drop-oldest", "queue": float(q), "in_flight": flight})
            for q in (1, 2, 4, 8)
        ]
    return rows


def design_of(fields: dict[str, Any], sigma: float, training: int) -> Design:
    """Return the design with `training` of the accelerators in the trainer; colocated uses all for both."""
    generating = ACCELERATORS if fields.get("pools") == "colocated" else ACCELERATORS - training
    base = Design(
        slots=generating * SLOTS,
        engines=generating,
        tau_0=0.02,
        tau_1=0.0003,
        sigma=sigma,
        train_time=SECONDS * 256 / (ACCELERATORS if generating == ACCELERATORS else training),
    )
    return replace(base, **fields)


def pipeline_frontier() -> Table:
    """Return the table: for each setting the split of largest throughput; speed relative to synchronous."""
    from testbed.pipeline.simulate import simulate

    rows = []
    for sigma in SIGMAS:
        base = 0.0
        for family, setting, fields in settings():
            shares = (0,) if fields.get("pools") == "colocated" else SHARES
            found = simulate([design_of(fields, sigma, n) for n in shares], batches=BATCHES)
            best = max(range(len(shares)), key=lambda k: found[k].mean("samples_per_s"))
            rate = found[best].mean("samples_per_s")
            base = base or rate
            lags = (found[best].mean("lag_token"), found[best].mean("lag_sample"))
            error = found[best].stderr("samples_per_s")
            rows.append((family, setting, sigma, shares[best], *lags, rate / base, rate, error))
    about = {
        "accelerators": ACCELERATORS,
        "replications": 4,
        "batches": BATCHES,
        "seed": 0,
        "splits": len(SHARES),
    }
    return Table.of(NAME, pd.DataFrame(rows, columns=list(COLUMNS)), about)


EXPERIMENT = Experiment(
    NAME,
    question="How much speed does lag buy, pipeline by pipeline, at the best split of accelerators?",
    source="papers of the systems, with the claims of pipeline",
    differs="an event simulation with log-normal lengths in place of a cluster",
    compute=pipeline_frontier,
    keys=("family", "setting", "sigma"),
    metrics=("training", "lag_token", "lag_sample", "speed", "samples_per_s", "stderr"),
    figure=Plot(
        "curves by arm",
        x="lag_token: mean lag of trained tokens (updates)",
        y="speed: samples/s ÷ synchronous",
        arm=("family",),
        panel="sigma: σ of log length",
        log="x",
    ),
    see=("pipelining-alone-gains-nothing",),
)
