"""Fin-ray: a slow environment, and a learner that waits for it, overlaps with it or does neither."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from analysis.lab import Floats, Frame, Part, Plot, Seeds, TunedArms, ask
from testbed.config.run import Run
from testbed.pipeline.design import Design

NAME = "actor-learner"
SOURCE = "Fin-ray async parallel training, as in the table of systems; from secondary notes"
LATENCIES, LEVEL = (1.0, 4.0, 16.0), 0.8
"""Mean waits for the environment in seconds; exact success to reach."""
SEEDS, LATER, PILOTS = 32, 90_000, 16
"""Seeds of a run, offset past those of an earlier table, and pilot seeds."""
RATES = tuple(float(2**i) for i in range(2, 11))
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
    log_every=1,
)  # fmt: skip
"""The critic's rate is no knob: .2 takes as many updates as .05 on pilot seeds."""


DRIFT = {"kl": "rollout_corr/kl_mu_pi_k3", "clip_share": "actor/clip_share"}


@cache
def _learned(lag: int, rate: float, seeds: Seeds) -> Frame:
    """Return the updates to the level at a lag by seed, and mean KL and clip share along the run; all updates
    where it is not reached.
    """
    from testbed.training.loop import train_pack

    start = replace(LEARNER, lag=lag, learning_rate=rate)
    rows = pd.DataFrame(train_pack(tuple(replace(start, seed=seed + LATER) for seed in seeds)))
    there = rows[rows["exact/value"] >= LEVEL].groupby("seed")["step"].min()
    means = rows.groupby("seed")[list(DRIFT.values())].mean()
    found = means.set_axis(list(DRIFT), axis=1).assign(updates=there)
    return found.fillna({"updates": LEARNER.steps}).loc[[seed + LATER for seed in seeds]]


@cache
def _simulated(arm: str, latency: float, seeds: Seeds) -> tuple[Floats, Floats]:
    """Return seconds per batch and the mean lag, [R] each."""
    from testbed.pipeline.simulate import simulate

    base = Design(
        slots=64, batch=64, group=4, length="fixed", length_mean=100.0, tau_0=DECODING / 100.0,
        train_time=TRAINING, tool_time=latency,
    )  # fmt: skip
    report = simulate([replace(base, **MODES[arm])], replicas=len(seeds), batches=60, seed=seeds[0] + LATER)
    return report[0].value_R["period"], report[0].value_R["lag_sample"]


def learn(seeds: Seeds, arm: str, latency: float, rate: float) -> dict[str, Floats]:
    """Return seconds per batch, mean lag, and seconds to the level (updates at that lag times the period)."""
    period_R, lag_R = _simulated(arm, latency, seeds)
    learned = _learned(round(lag_R.mean()), rate, seeds)
    seconds_R = (learned["updates"].to_numpy() + 1.0) * period_R
    drift = {name: learned[name].to_numpy() for name in DRIFT}
    beyond_R = lag_R - (latency + DECODING) / TRAINING
    return {
        "period": period_R, "lag": lag_R, "seconds": seconds_R, "log_seconds": np.log(seconds_R),
        "beyond": beyond_R, "rate": np.full(len(seeds), rate), **drift,
    }  # fmt: skip


EXPERIMENT = TunedArms(
    {mode: {"rate": RATES} for mode in MODES}, learn, "-log_seconds", PILOTS, {"latency": LATENCIES}
).experiment(
    NAME,
    SEEDS,
    ("period", "lag", "seconds", "log_seconds", "beyond", "rate", *DRIFT),
    {"level": LEVEL},
    question="Does a learner that never waits for its environment reach a level first, and how old are "
    "its data?",
    source=SOURCE,
    differs=(
        "an event simulator with exponential waits gives seconds and the mean lag, and a table learns at "
        "that lag with all samples equally old, each mode at its best rate; no fin, no sinusoid"
    ),
    margins={"factor of time": FASTER, "updates beyond the ratio": ROOM},
    figure=Plot(
        "final by setting", x="latency: mean wait for the environment (s)",
        y="seconds: seconds to a success of 0.8", arm=("arm: mode",), log="y",
        says="Shows seconds until a success of 0.8 against the environment's mean wait; an event simulator "
        "gives period and mean lag, and a tabular learner trains at that lag; it generates and trains in "
        "turn (synchronous), generates the next batch while it trains (overlapped), or never waits and "
        "drops the oldest data of a full queue (decoupled), each at its best rate.",
    ),
    systems={"Fin-ray async parallel training": Part("time and lag; not the fin, nor a searched sinusoid")},
)  # fmt: skip


for _name, _mode in (
    ("decoupled-actors-are-faster-than-waiting", "synchronous"),
    ("decoupled-actors-are-faster-than-overlapped", "overlapped"),
):
    ask(
        EXPERIMENT, _name, "At every latency the decoupled learner reaches the level faster than the "
        f"{_mode} one, by 10 %, each at its best rate.", _mode, "decoupled", float(np.log(FASTER)),
        "log_seconds", over={"latency": LATENCIES},
    )  # fmt: skip

EXPERIMENT.claim(
    "lag-is-bounded-by-the-ratio-of-latencies",
    """The decoupled learner's mean lag is at most (wait + decoding) / training + 2 updates at every
    latency.""",
).compare("beyond", {"arm": "decoupled", "latency": LATENCIES}, by=ROOM, below=True)
