"""AILBoost: imitation by matching occupancies, its replay weighted as the ensemble of policies is."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import Experiment, Plot, combinations, of_keys
from envs.mdps import garnet
from envs.offline import collect
from testbed.offline import tabular
from testbed.offline.imitation import match_occupancy

NAME = "boosted-imitation"
SEEDS, ROUNDS = 30, 20
REPLAY = {"uniform": 0.0, "boosted": 0.1, "strongly boosted": 0.3, "on policy": 1.0}
"""Share of the newest policy in the replay of its round; 0 weighs all policies alike."""
LOWER, COMPETITIVE = 0.01, 0.15
"""Total variation between occupancies."""


def make(key_R: NDArray[np.uint64]) -> pd.DataFrame:
    """Return the total variation between ensemble and expert, mean over rounds 6 to 20, and at the end.

    The expert is given by the shares of visits in 1 or 10 of its trajectories of 50 steps.
    """
    world = garnet(discount=0.9, seed=0, horizon=50)
    best_1SA = tabular.greedy(tabular.optimal_q(world))
    expert_RWSA = np.broadcast_to(best_1SA, (len(key_R), 1, 16, 4))
    frame, _ = combinations(key_R, trajectories=[1, 10], replay=REPLAY)
    shares = []
    for trajectories in (1, 10):
        visit_RSA = collect(world, expert_RWSA, trajectories, key_R).counts(16, 4).visit_RSA
        shares.append(np.tile(visit_RSA / visit_RSA.sum((-1, -2), keepdims=True), (len(REPLAY), 1, 1)))
    distance_IR, _ = match_occupancy(
        world, np.concatenate(shares), boost=[REPLAY[each] for each in frame["replay"]], rounds=ROUNDS
    )
    return frame.assign(distance=distance_IR[5:].mean(0), final=distance_IR[-1])


EXPERIMENT = Experiment(
    NAME,
    question="Does replay that is weighted like the ensemble match an expert better?",
    source="Chang et al. (2024), AILBoost",
    differs="a table with exact discriminators and soft optimal policies; a random MDP of 16 states",
    compute=of_keys(NAME, make, SEEDS, {"rounds": ROUNDS}),
    keys=("run", "trajectories", "replay", "seed"),
    metrics=("distance", "final"),
    margins={
        "total variation that counts as lower": LOWER,
        "total variation that counts as competitive": COMPETITIVE,
    },
    figure=Plot(
        "final by dial", x="trajectories: expert trajectories", y="distance: total variation to the expert",
        arm=("replay",),
    ),
    systems=("AILBoost",),
)  # fmt: skip


EXPERIMENT.claim(
    "boosted-replay-matches-an-expert-better",
    """Averaged over rounds 6 to 20 the boosted ensemble is closer to the expert by 0.01 than with
    uniform and than with on-policy replay, from 1 and 10 trajectories, in the first run and the
    replication.""",
).compare(
    "distance",
    {"replay": ("uniform", "on policy")},
    {"replay": "boosted"},
    by=LOWER,
    over={"trajectories": (1, 10)},
)


EXPERIMENT.claim(
    "one-expert-trajectory-is-nearly-enough",
    """From one trajectory the boosted ensemble ends at most 0.15 further from what it was given than
    from ten, in the first run and the replication.""",
).compare(
    "final", {"trajectories": 1}, {"trajectories": 10}, by=COMPETITIVE, below=True, over={"replay": "boosted"}
)
