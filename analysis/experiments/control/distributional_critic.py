"""DSAC on the maximization-bias chain: a critic whose steps are divided by the variance of its target."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import Experiment, Plot, combinations, dials, of_keys
from envs.mechanisms import max_bias
from envs.offline import exact_model
from testbed.offline.models import discrete_choice

NAME = "distributional-critic"
SEEDS, STEPS, STD, TEMPERATURE, RATE = 40, 2000, 3.0, 0.05, 0.1
ARMS = {
    "scalar": {"spread_rate": 0.0, "step_size": RATE},
    "distributional": {"spread_rate": 0.05, "step_size": RATE},
    "small steps": {"spread_rate": 0.0, "step_size": RATE / STD**2},
}
"""Critics: of the value alone, of value and variance, and of the value with the step that the variance
allows.
"""
LESS, MORE = 0.1, 0.05
"""Over-estimation in units of reward; the noise has standard deviation 3, the rewards mean -0.1."""


def make(key_R: NDArray[np.uint64]) -> pd.DataFrame:
    """Return the over-estimation of the actions that lead to the noisy state, averaged over training."""
    from testbed.offline.replay import replay_q

    world = max_bias(noise_std=STD)
    moves_SAS, reward_SA = exact_model(world)
    _, soft_1S = discrete_choice(moves_SAS[None], reward_SA[None] / TEMPERATURE, world.discount)
    # In units of the temperature; what ended is worth nothing, whatever the soft value of its state.
    truth = world.discount * TEMPERATURE * soft_1S[0, 1]
    frame, key_N = combinations(key_R, critic=ARMS, updates=[0.5, 1.0, 4.0])
    q_RKSA, _ = replay_q(
        world, key_N, steps=STEPS, every=100, temperature=TEMPERATURE,
        updates=frame["updates"].to_numpy(), **dials(frame["critic"], ARMS),
    )  # fmt: skip
    frame["over-estimation"] = (q_RKSA[:, 1:, 0, 1:].max(-1) - truth).mean(-1)
    return frame


EXPERIMENT = Experiment(
    NAME,
    question="Does a critic that knows the variance of its target over-estimate less?",
    source="Duan et al. (2021), Distributional soft actor-critic",
    differs="a table; ten actions with noise of standard deviation 3 in place of MuJoCo",
    compute=of_keys(NAME, make, SEEDS, {"steps": STEPS, "noise": STD}),
    keys=("run", "critic", "updates", "seed"),
    metrics=("over-estimation",),
    margins={"over-estimation that counts as less": LESS, "over-estimation that counts as more": MORE},
    figure=Plot(
        "final by dial", x="updates: updates per step", y="over-estimation: mean over-estimation",
        arm=("critic",),
    ),
    systems=("DSAC",),
)  # fmt: skip


EXPERIMENT.claim(
    "a-distributional-critic-over-estimates-less",
    """At one update per step, steps divided by the target's running variance lower the over-estimation
    of the noisy branch by more than 0.1, in the first run and the replication.""",
).compare(
    "over-estimation", {"critic": "scalar"}, {"critic": "distributional"}, by=LESS, over={"updates": 1.0}
)


EXPERIMENT.claim(
    "a-distributional-critic-is-a-smaller-step",
    """A scalar critic whose step size is divided by the reward's variance over-estimates no more than
    the distributional one, by 0.05, in the first run and the replication.""",
    source="this project",
).compare(
    "over-estimation",
    {"critic": "small steps"},
    {"critic": "distributional"},
    by=MORE,
    below=True,
    over={"updates": 1.0},
)
