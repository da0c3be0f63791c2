"""Fin-ray: a slow environment, and a learner that waits for it, overlaps with it or does neither."""

from functools import cache
from typing import Any

import numpy as np

from analysis.lab import Floats, Frame, Plot, Seeds, TunedArms, ask, generator, inside
from analysis.worlds.offline_worlds import DISCOUNT, Worlds
from analysis.worlds.sampled_improvement import Arm
from analysis.worlds.sampled_improvement import learn as trained
from envs.finite_mdp import FiniteMDP
from testbed.pipeline.design import Design

NAME = "actor-learner"
SOURCE = "Fin-ray async parallel training, as in the table of systems; from secondary notes"
LATENCIES, LEVEL = (1.0, 4.0, 16.0), 0.9
"""Mean waits for the environment in seconds; score to reach, 1 being the optimum's lead over uniform play."""
SEEDS, WORLDS, LATER, PILOTS = 64, 32, 700_000, 128
"""Units of a run and the ladders of which each is the mean, offset past those of earlier tables; pilots."""
DIGITS, ACTIONS, STEPS, UPDATES = 8, 4, 1024, 80
GRID = {"rate": tuple(0.625 * 2**i for i in range(9)), "knob": (*(0.1 * 2**i for i in range(8)), np.inf)}
"""Rates and clips of PPO; the last is none."""
TRAINING, DECODING = 2.0, 2.0
"""Seconds of the trainer per batch, and of the actor per response."""
FASTER, ROOM, COSTS = 1.1, 2.0, 1.25
"""Ratio of times that counts as faster; updates by which a lag may exceed the ratio of latencies; ratio of
updates below which age would cost too little for a learner that waits to win."""
MODES: dict[str, dict[str, Any]] = {
    "synchronous": {"admission": "capacity", "eta": 0, "pools": "colocated", "barrier": True},
    "overlapped": {"admission": "capacity", "eta": 1, "queue": 2.0},
    "decoupled": {"queue_rule": "drop-oldest", "queue": 1.0},
}


def ladder(seed: int) -> FiniteMDP:
    """Return a ladder: the right digit climbs a rung and pays .8 to 1.2, a wrong one falls to the ground.

    A rung's digit can be learned only once the policy climbs there, so that learning is sequential.
    """
    rng, rungs = generator(seed, NAME), np.arange(DIGITS)
    code_S, pays_S = rng.integers(ACTIONS, size=DIGITS), rng.uniform(0.8, 1.2, size=DIGITS)
    transition_SAS, reward_SA = np.zeros((DIGITS, ACTIONS, DIGITS)), np.zeros((DIGITS, ACTIONS))
    transition_SAS[..., 0] = 1.0
    transition_SAS[rungs, code_S] = np.eye(DIGITS)[np.minimum(rungs + 1, DIGITS - 1)]
    reward_SA[rungs, code_S] = pays_S
    return FiniteMDP(
        transition_SAS=transition_SAS, reward_SA=reward_SA, start_S=np.eye(DIGITS)[0], horizon=16,
        discount=DISCOUNT,
    )  # fmt: skip


@cache
def _learned(lag: int, rate: float, clip: float, seeds: Seeds) -> tuple[Floats, Floats, Floats]:
    """Return updates to the level at a lag, all if it is not reached, mean KL, and clip share, [R] each."""
    drift: list[Floats] = []
    score_KR = trained(
        Worlds.of(tuple(ladder(seed + LATER) for seed in seeds)), Arm(rate=rate, knob=clip, lag=lag),
        iterations=UPDATES, batch=STEPS, seed=seeds[0] + LATER, noise=0.1, drift=drift,
    )  # fmt: skip
    there_KR = score_KR >= LEVEL
    return np.where(there_KR.any(0), there_KR.argmax(0), UPDATES), *np.mean(drift, axis=0)


@cache
def _simulated(arm: str, latency: float, seeds: Seeds) -> tuple[Floats, ...]:
    """Return seconds per batch and the mean lag, [R] each, of 8 replicas for each unit's 32 worlds."""
    from testbed.pipeline.simulate import simulate

    base = Design(
        slots=64, batch=64, group=4, length="fixed", length_mean=100.0, tau_0=DECODING / 100.0,
        train_time=TRAINING, tool_time=latency, **MODES[arm],
    )  # fmt: skip
    (report,) = simulate([base], replicas=len(seeds) // 4, batches=60, seed=seeds[0] + LATER)
    return tuple(np.repeat(report.value_R[name], 4) for name in ("period", "lag_sample"))


def learn(seeds: Seeds, arm: str, latency: float, rate: float, knob: float) -> dict[str, Floats]:
    """Return seconds per batch, mean lag, updates at that lag to the level, and their seconds."""
    period_R, lag_R = _simulated(arm, latency, seeds)
    # A policy is a whole number of updates old.
    updates_R, kl_R, clipped_R = _learned(round(lag_R.mean()), rate, knob, seeds)
    return {
        "period": period_R, "lag": lag_R, "log_updates": np.log(updates_R),
        "log_seconds": np.log(updates_R * period_R),
        "beyond": lag_R - (latency + DECODING) / TRAINING, "kl": kl_R, "clip_share": clipped_R,
    }  # fmt: skip


EXPERIMENT = TunedArms(
    dict.fromkeys(MODES, GRID), learn, "-log_seconds", PILOTS, {"latency": LATENCIES},
    {"knob": (np.inf,)}, dict.fromkeys(MODES, ({"rate": 10.0, "knob": 0.8}, {"rate": 40.0, "knob": 3.2})),
).experiment(
    NAME,
    SEEDS,
    ("period", "lag", "log_updates", "log_seconds", "beyond", "kl", "clip_share"),
    {"level": LEVEL},
    WORLDS,
    question="Does a learner that never waits for its environment reach a level first, and how old are "
    "its data?",
    source=SOURCE,
    differs=(
        "an event simulator with exponential waits gives seconds and the mean lag, and PPO with a table and "
        "a TD critic learns at that lag to climb a ladder of eight digits, with samples of one age; each "
        "mode at its best rate and clip; no fin, no sinusoid"
    ),
    margins={"factor of time": FASTER, "updates beyond the ratio": ROOM, "factor of updates": COSTS},
    figure=Plot(
        "final by setting", x="latency: mean wait for the environment (s)",
        y="log_seconds: log seconds to a score of 0.9", arm=("arm: mode",),
        says="Shows the logarithm of seconds until a score of 0.9 against the environment's mean wait; an "
        "event simulator gives period and mean lag, and PPO learns at that lag to climb a ladder on which a "
        "rung can be learned only by those who reach it; it generates and trains in turn (synchronous), "
        "generates the next batch while it trains (overlapped), or never waits and drops the oldest data of "
        "a full queue (decoupled), each at its best rate and clip.",
    ),
    systems={"Fin-ray async parallel training": "time and lag; not the fin, nor a searched sinusoid"},
)  # fmt: skip


def costly(table: Frame) -> str:
    """Return "" if age costs: decoupled data need 1.25 times the updates of fresh ones at every latency."""
    mean = table.groupby(["latency", "arm"])["log_updates"].mean().unstack()
    ratio = float(np.exp(mean["decoupled"] - mean["synchronous"]).min())
    return "" if ratio >= COSTS else f"age costs a factor of {ratio:.2f} of updates, {COSTS:g} expected"


for _name, _mode in (
    ("decoupled-actors-are-faster-than-waiting", "synchronous"),
    ("decoupled-actors-are-faster-than-overlapped", "overlapped"),
):
    ask(
        EXPERIMENT, _name, "At every latency the decoupled learner reaches the level faster than the "
        f"{_mode} one, by 10 %, each at its best rate and clip.", _mode, "decoupled", float(np.log(FASTER)),
        "log_seconds", over={"latency": LATENCIES},
        gates={"tuned": inside(arm=(_mode, "decoupled")), "acts": costly},
    )  # fmt: skip

EXPERIMENT.claim(
    "lag-is-bounded-by-the-ratio-of-latencies",
    """The decoupled learner's mean lag is at most (wait + decoding) / training + 2 updates at every
    latency.""",
).compare("beyond", {"arm": "decoupled", "latency": LATENCIES}, by=ROOM, below=True)
