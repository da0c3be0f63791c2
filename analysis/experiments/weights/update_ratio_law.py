"""The scaling law of value-based RL: steps to a value against the update ratio, and its extrapolation."""

import numpy as np
from numpy.typing import NDArray

from analysis.lab import Experiment, Keys, Plot, Rows, Seeds, ask, columns, keys, of_seeds
from envs import infinite_horizon
from envs.mdps import garnet
from testbed.offline import tabular_offline

NAME = "update-ratio-law"
SEEDS, CELLS, MOST, THRESHOLD = 80, 40, 30_000, 0.95
RATES = (0.03, 0.1, 0.3, 1.0)
"""Step sizes; the best for each world and ratio is chosen on separate cells, as in the source."""
FITTED, HELD_OUT = (0.5, 1.0, 2.0, 4.0), (8.0, 16.0)
RATIOS = (*FITTED, *HELD_OUT)
ERROR = float(np.log(1.2))
"""Error of an extrapolation that counts as off: 20%."""


def rows(seeds: Seeds) -> Rows:
    """Yield median environment steps and updates until the greedy policy has 0.95 of the best value.

    A seed is a random world. Predicted: by a power law with asymptote through its four smaller ratios.
    """
    steps_RU = np.array([[_tuned_steps(seed, updates) for updates in RATIOS] for seed in seeds])
    predicted_RU = np.stack([_law(steps_U) for steps_U in steps_RU])
    for u, updates in enumerate(RATIOS):
        steps_R, predicted_R = steps_RU[:, u], predicted_RU[:, u]
        error_R = np.abs(np.log(predicted_R / steps_R))
        yield columns(
            seeds, updates=updates, steps=steps_R, computed=steps_R * updates, predicted=predicted_R,
            error=error_R,
        )  # fmt: skip


def _tuned_steps(seed: int, updates: float) -> float:
    """Return the median steps over 40 cells, at the step size that needs the fewest on 40 others."""
    tuning, final = (keys(tuple(range(CELLS)), f"{NAME}/{part}/{seed}") for part in ("tuning", "final"))
    rate = min(RATES, key=lambda rate: float(np.median(_steps(seed, updates, rate, tuning))))
    return float(np.median(_steps(seed, updates, rate, final)))


def _law(steps_U: NDArray[np.float64]) -> NDArray[np.float64]:
    """D(ratio) = least + (scale / ratio)^power at all ratios, fitted by least log error."""
    ratio_U, fitted = np.array(RATIOS), len(FITTED)
    laws = []
    for share in np.linspace(0.0, 0.99, 100):
        least = share * steps_U[:fitted].min()
        slope, level = np.polyfit(np.log(ratio_U[:fitted]), np.log(steps_U[:fitted] - least), 1)
        laws.append(least + np.exp(level + slope * np.log(ratio_U)))
    errors = [np.square(np.log(law_U / steps_U)[:fitted]).sum() for law_U in laws]
    return laws[int(np.argmin(errors))]


def _steps(seed: int, updates: float, rate: float, key_N: Keys) -> NDArray[np.float64]:
    """Steps to the threshold of every cell, capped at 30,000 / updates^0.7."""
    from testbed.offline.replay_control import replay_q

    world = garnet(discount=0.9, seed=seed, horizon=16)
    best_1SA = tabular_offline.greedy(tabular_offline.optimal_q(world))
    every = max(10, int(100 / updates**0.7))
    steps = int(MOST / updates**0.7) // every * every
    q_RKSA, _ = replay_q(world, key_N, steps=steps, every=every, updates=updates, epsilon=0.3, step_size=rate)
    value_RK = infinite_horizon.value(world, tabular_offline.greedy(q_RKSA))
    there_RK = value_RK >= THRESHOLD * infinite_horizon.value(world, best_1SA)
    return every * (1.0 + np.where(there_RK.any(-1), there_RK.argmax(-1), there_RK.shape[1]))


EXPERIMENT = Experiment(
    question="Do small update ratios predict how environment steps trade for updates at large ones?",
    source="Rybkin et al. (2025), Value-based deep RL scales predictably",
    differs="tables on random MDPs, no batches; the constants are fitted on a grid",
    compute=of_seeds(NAME, rows, SEEDS, {"cells": CELLS, "threshold": THRESHOLD}),
    keys=("run", "updates", "seed"),
    metrics=("steps", "computed", "predicted", "error"),
    margins={
        "log error that counts as predicted": ERROR,
        "factor of steps saved": 2.0,
        "factor of updates spent": 1.2,
    },
    figure=Plot(
        "curves by arm", x="updates: updates per step", y="steps: environment steps to 0.95", arm=("run",),
        log="xy",
        says="Shows environment steps until the greedy policy has 0.95 of the best value against updates "
        "per step (both axes logarithmic), for replayed tabular Q-learning on random MDPs, at the best step "
        "size of each world and ratio; a run is the first table or its replication on fresh worlds.",
    ),
    systems=("Value-based deep RL scales predictably",),
)  # fmt: skip


for _name, _ratio in (
    ("small-update-ratios-predict-8-updates-per-step", 8.0),
    ("small-update-ratios-predict-16-updates-per-step", 16.0),
):
    ask(EXPERIMENT, _name, "A power law with asymptote through 0.5 to 4 updates per step predicts the steps "
        f"at {_ratio:g} within 20%.", {"updates": _ratio}, by=ERROR, outcome="error", below=True)  # fmt: skip
