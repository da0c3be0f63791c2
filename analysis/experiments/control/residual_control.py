"""ResFiT on a point mass: an off-policy learner on top of a cloned controller, against one from scratch."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import Evidence, Experiment, Plot, combinations, difference, must_exceed, of_keys
from envs.continuous import normals, point_mass
from testbed.offline.control import Settings, actor_critic

NAME = "residual-control"
SEEDS, STEPS, EVERY, PLAYERS, DEMOS, CUT, SOLVED = 32, 240, 10, 8, 500, 2.0, 0.02
RATIOS = (1.0, 2.0, 4.0, 8.0)
ARMS = ("scratch", "residual", "residual with demonstrations")
FACTOR, LESS = 1.2, 0.02
"""Of environment steps; share of the way from a weak gain to Riccati's, cut at 2."""


def make(key_R: NDArray[np.uint64]) -> Iterator[pd.DataFrame]:
    """Return steps until the exact loss stays below 0.02, and the mean loss on the way, cut at 2.

    The base is half of the optimal gain, as a clone of a timid expert; its own loss is 0.08. Demonstrations:
    500 steps of the base with noise, which make up half of every batch.
    """
    world = point_mass(noise_std=0.1)
    base_UD = 0.5 * world.optimal_gain()
    best, weak = world.value(world.optimal_gain()), world.value(np.array([[0.3, 0.3]]))
    noise_RNX = normals(key_R, 2**31, DEMOS, 5)
    x_RND = world.starts(noise_RNX[..., :2])
    u_RNU = -x_RND @ base_UD.T + 0.3 * noise_RNX[..., 2:3]
    next_RND, reward_RN = world.step(x_RND, u_RNU, noise_RNX[..., 3:])
    for updates in RATIOS:
        for arm in ARMS:
            gains, _ = actor_critic(
                world, key_R, Settings(steps=STEPS, every=EVERY, players=PLAYERS, updates=updates),
                base_RUD=None if arm == "scratch" else np.broadcast_to(base_UD, (len(key_R), 1, 2)),
                offline=(x_RND, u_RNU, reward_RN, next_RND) if arm == ARMS[2] else None,
            )  # fmt: skip
            loss_ER = np.minimum((best - world.value(gains)) / (best - weak), CUT)
            last_R = len(loss_ER) - (loss_ER[::-1] >= SOLVED).argmax(0)
            solved_R = np.where((loss_ER >= SOLVED).any(0), last_R, 0)
            frame, _ = combinations(key_R, updates=[updates], arm=[arm])
            yield frame.assign(steps=EVERY * PLAYERS * (1 + solved_R), loss=loss_ER.mean(0))


EXPERIMENT = Experiment(
    NAME,
    question="Does a residual on a cloned controller need fewer samples than learning from scratch?",
    source="Residual off-policy RL (ResFiT), of which a summary alone was read",
    differs="linear-quadratic control with TD3 and a linear base that is half as strong as it should be",
    compute=of_keys(NAME, make, SEEDS, {"steps": STEPS, "demonstrations": DEMOS}),
    keys=("run", "updates", "arm", "seed"),
    metrics=("steps", "loss"),
    margins={"factor of steps that counts as fewer": FACTOR, "mean loss that counts as less": LESS},
    figure=Plot(
        "final by dial", x="updates: updates per step", y="loss: mean loss while learning", arm=("arm",),
    ),
    systems=("Residual off-policy RL (ResFiT)",),
)  # fmt: skip


EXPERIMENT.claim(
    "a-residual-solves-with-fewer-samples",
    """With a residual the steps until the loss stays below 0.02 are fewer than from scratch by a factor
    of 1.2, at 1 to 8 updates per step, in the first run and the replication.""",
).compare("steps", {"arm": "scratch"}, {"arm": "residual"}, times=FACTOR, over={"updates": RATIOS})


EXPERIMENT.claim(
    "a-residual-loses-less-while-it-learns",
    """With a residual the mean loss while learning, cut at 2, is less than from scratch, at 1, 2 and 4
    updates per step, in the first run and the replication.""",
    source="this project",
).compare("loss", {"arm": "scratch"}, {"arm": "residual"}, over={"updates": RATIOS[:-1]})


@EXPERIMENT.claim()
def demonstrations_of_the_base_help_its_residual(table: pd.DataFrame) -> Evidence:
    """Half a batch of the base's own steps makes the mean loss of a residual less by 0.02, at 1 to 8 updates
    per step, in the first run and the replication.
    """
    plain, helped = (
        difference(table, "loss", {"arm": "scratch"}, {"arm": arm}, updates=RATIOS) for arm in ARMS[1:]
    )
    saved = {name: helped[name] - plain[name] for name in plain}
    return must_exceed(saved, LESS, "mean loss saved")
