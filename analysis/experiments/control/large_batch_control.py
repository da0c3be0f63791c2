"""FastTD3 on a point mass: what larger replay batches and more parallel worlds buy, for TD3 and SAC."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import Experiment, Plot, combinations, of_keys
from envs.continuous import point_mass
from testbed.offline.control import Settings, actor_critic

NAME = "large-batch-control"
SEEDS, STEPS, EVERY, SOLVED = 24, 320, 10, 0.1
BATCHES, TEMPERATURES = (8, 32, 128, 512), {"TD3": 0.0, "SAC": 0.05}
EACH: dict[str, Any] = {"learner": tuple(TEMPERATURES)}
LEAST, FACTOR = 1.1, 1.2
"""Of updates to a loss of a tenth; the loss is the share of the way from a weak gain to Riccati's."""


def make(key_R: NDArray[np.uint64]) -> Iterator[pd.DataFrame]:
    """Return updates until the mean action's exact loss is below 0.1, and steps drawn for them.

    One update per step of 4 or 64 parallel worlds; those that do not get there count with one reading more
    than there are.
    """
    world = point_mass(noise_std=0.1)
    best, weak = world.value(world.optimal_gain()), world.value(np.array([[0.3, 0.3]]))
    for players in (4, 64):
        for batch in BATCHES:
            frame, key_N = combinations(key_R, players=[players], batch=[batch], learner=TEMPERATURES)
            settings = Settings(steps=STEPS, every=EVERY, players=players, batch=batch)
            gains, _ = actor_critic(
                world, key_N, settings, temperature=frame["learner"].map(TEMPERATURES).to_numpy()
            )
            there_EN = (best - world.value(gains)) / (best - weak) < SOLVED
            first_N = np.where(there_EN.any(0), there_EN.argmax(0), len(there_EN))
            frame["updates"] = EVERY * (1 + first_N)
            frame["drawn"] = frame["updates"] * batch
            yield frame


EXPERIMENT = Experiment(
    NAME,
    question="Do larger batches from replay reach a good controller in fewer updates, until they do not?",
    source="FastTD3, of which a summary alone was read: parallel simulation and large batches",
    differs="linear-quadratic control; updates in place of seconds; no distributional critic",
    compute=of_keys(NAME, make, SEEDS, {"steps": STEPS}),
    keys=("run", "players", "batch", "learner", "seed"),
    metrics=("updates", "drawn"),
    margins={"factor of updates that counts as fewer": LEAST, "factor that counts as much": FACTOR},
    figure=Plot(
        "final by setting", x="batch", y="updates: updates to a loss of 0.1", arm=("learner", "players"),
    ),
    systems=("FastTD3",),
)  # fmt: skip


EXPERIMENT.claim(
    "larger-batches-need-fewer-updates",
    """From a batch of 8 to one of 128 the updates to a loss of 0.1 fall by a factor of 1.1, for TD3 and
    SAC in 4 and 64 worlds.""",
).compare("updates", {"batch": 8}, {"batch": 128}, times=LEAST, over={"players": (4, 64), **EACH})


EXPERIMENT.claim(
    "beyond-a-batch-of-128-little-is-saved",
    """From a batch of 128 to one of 512 the updates fall by less than a factor of 1.2, for TD3 and SAC
    in 4 and 64 worlds: four times the work for little.""",
).compare(
    "updates",
    {"batch": 128},
    {"batch": 512},
    times=FACTOR,
    below=True,
    over={"players": (4, 64), **EACH},
)


EXPERIMENT.claim(
    "parallel-worlds-save-updates",
    """At a batch of 128, 64 parallel worlds need fewer updates than 4, by a factor of 1.2, for TD3 and
    SAC.""",
).compare("updates", {"players": 4}, {"players": 64}, times=FACTOR, over={"batch": 128, **EACH})
