"""Fin-ray: a slow environment, and a learner that waits for it, overlaps with it or does neither."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Frame, Part, Plot, Rows, Seeds, of_seeds
from testbed.config.run import Run
from testbed.pipeline.design import Design

NAME = "actor-learner"
SOURCE = "Fin-ray async parallel training, as in the table of systems; from secondary notes"
LATENCIES, LEVEL, SEEDS = (1.0, 4.0, 16.0), 0.8, 6
"""Mean waits for the environment in seconds; exact success to reach."""
TRAINING, DECODING = 2.0, 2.0
"""Seconds of the trainer per batch, and of the actor per response."""
FASTER, ROOM = 1.1, 2.0
"""Ratio of times that counts as faster; updates by which a lag may exceed the ratio of latencies."""
MODES: dict[str, dict[str, Any]] = {
    "synchronous": {"admission": "capacity", "eta": 0, "pools": "colocated", "barrier": True},
    "overlapped": {"admission": "capacity", "eta": 1, "queue": 2.0},
    "decoupled": {"queue_rule": "drop-oldest", "queue": 1.0},
}
LEARNER = Run(
    task="tree", task_args=(("task", "guess"),), recipe="ppo", recipe_args=(("advantage", "v_trace"),),
    critic="table", critic_args=(("off_policy", True), ("rate", 0.05)), prompts=4, group=8, steps=160,
    learning_rate=8.0, log_every=2,
)  # fmt: skip


DRIFT = {"kl": "rollout_corr/kl_mu_pi_k3", "clip_share": "actor/clip_share"}


@cache
def _learned(lag: int, seeds: Seeds) -> Frame:
    """Return the updates to the level at a lag by seed, and mean KL and clip share along the run; all updates
    where it is not reached.
    """
    from testbed.training.loop import train_pack

    rows = pd.DataFrame(train_pack(tuple(replace(LEARNER, lag=lag, seed=seed) for seed in seeds)))
    there = rows[rows["exact/value"] >= LEVEL].groupby("seed")["step"].min()
    updates = there.reindex(seeds).fillna(LEARNER.steps) + 1.0
    means = rows.groupby("seed")[list(DRIFT.values())].mean().loc[list(seeds)]
    return means.set_axis(list(DRIFT), axis=1).assign(updates=updates)


def rows(seeds: Seeds) -> Rows:
    """Return seconds per batch, mean lag, and seconds to the level (updates at that lag times the period)."""
    from testbed.pipeline.simulate import simulate

    base = Design(
        slots=64, batch=64, group=4, length="fixed", length_mean=100.0, tau_0=DECODING / 100.0,
        train_time=TRAINING,
    )  # fmt: skip
    cells = [(wait, mode) for wait in LATENCIES for mode in MODES]
    designs = [replace(base, tool_time=wait, **MODES[mode]) for wait, mode in cells]
    for (wait, mode), report in zip(
        cells, simulate(designs, replicas=len(seeds), batches=60, seed=seeds[0]), strict=True
    ):
        period_R, lag_R = report.value_R["period"], report.value_R["lag_sample"]
        learned = _learned(round(report.mean("lag_sample")), seeds)
        seconds_R = learned["updates"].to_numpy() * period_R
        drift = {name: learned[name].to_numpy() for name in DRIFT}
        columns = {"period": period_R, "lag": lag_R, "seconds": seconds_R, "log_seconds": np.log(seconds_R)}
        ratio = (wait + DECODING) / TRAINING
        yield pd.DataFrame(
            {"seed": seeds, "latency": wait, "mode": mode, **columns, "beyond": lag_R - ratio, **drift}
        )


EXPERIMENT = Experiment(
    question="Does a learner that never waits for its environment reach a level first, and how old are "
    "its data?",
    source=SOURCE,
    differs=(
        "an event simulator with exponential waits gives seconds and the mean lag, and a table learns at "
        "that lag with all samples equally old; no fin, no sinusoid"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"level": LEVEL}),
    keys=("run", "seed", "latency", "mode"),
    metrics=("period", "lag", "seconds", "log_seconds", "beyond", *DRIFT),
    margins={"factor of time": FASTER, "updates beyond the ratio": ROOM},
    figure=Plot(
        "final by setting", x="latency: mean wait for the environment (s)",
        y="seconds: seconds to a success of 0.8", arm=("mode",), log="y",
        says="Shows seconds until a success of 0.8 against the environment's mean wait; an event simulator "
        "gives period and mean lag, and a tabular learner trains at that lag; it generates and trains in "
        "turn (synchronous), generates the next batch while it trains (overlapped), or never waits and "
        "drops the oldest data of a full queue (decoupled).",
    ),
    systems={"Fin-ray async parallel training": Part("time and lag; not the fin, nor a searched sinusoid")},
)  # fmt: skip


for _name, _mode in (
    ("decoupled-actors-are-faster-than-waiting", "synchronous"),
    ("decoupled-actors-are-faster-than-overlapped", "overlapped"),
):
    EXPERIMENT.claim(
        _name,
        f"At every latency the decoupled learner reaches the level faster than the {_mode} one, by 10 %.",
    ).compare(
        "log_seconds",
        {"mode": _mode},
        {"mode": "decoupled"},
        by=float(np.log(FASTER)),
        over={"latency": LATENCIES},
    )

EXPERIMENT.claim(
    "lag-is-bounded-by-the-ratio-of-latencies",
    """The decoupled learner's mean lag is at most (wait + decoding) / training + 2 updates at every
    latency.""",
).compare("beyond", {"mode": "decoupled", "latency": LATENCIES}, by=ROOM, below=True)
