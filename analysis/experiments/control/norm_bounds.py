"""FlashSAC on Baird's star: a critic with a bounded norm of weights or errors, over the ratio of updates."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import Experiment, Plot, combinations, of_keys, settings_of
from envs.mdps import BAIRD_FEATURES, baird_star

NAME = "norm-bounds"
SEEDS, STEPS, RATE, BOUND = 24, 1000, 0.05, 20.0
ARMS: dict[str, dict[str, float]] = {
    "plain": {},
    "weight norm": {"weight_bound": BOUND},
    "error": {"error_bound": 1.0},
    "both": {"weight_bound": BOUND, "error_bound": 1.0},
}
RATIOS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
BEYOND, MORE, GONE = 2.0, 0.1, 0.3
"""log10 of the largest |Q|, where every value is 0: diverged is beyond 100, gone below 2, and more a factor
1.26.
"""


def make(key_R: NDArray[np.uint64]) -> pd.DataFrame:
    """Return log10 of the largest |Q| at the end; all true values are 0."""
    from testbed.offline.replay import replay_q

    # One step from a uniform state: solid has Baird's features, dashed a table, and data are uniform.
    feature_SAF = np.zeros((7, 2, 15))
    feature_SAF[:, 1, :8] = BAIRD_FEATURES
    feature_SAF[range(7), 0, range(8, 15)] = 1.0
    start_F = np.ones(15)
    start_F[6] = 10.0
    frame, key_N = combinations(key_R, critic=ARMS, updates=RATIOS)
    q_RKSA, _ = replay_q(
        baird_star(horizon=1), key_N, steps=STEPS, every=STEPS, feature_SAF=feature_SAF, initial=start_F,
        epsilon=1.0, step_size=RATE, updates=frame["updates"].to_numpy(),
        **settings_of(frame["critic"], ARMS),
    )  # fmt: skip
    return frame.assign(final=np.log10(np.abs(q_RKSA[:, -1]).max((-1, -2))))


EXPERIMENT = Experiment(
    NAME,
    question="Do bounds of a critic's norms keep its errors from growing with the ratio of updates?",
    source="FlashSAC, of which a summary alone was read: bounded weight, feature and gradient norms",
    differs="Baird's star, where every value is 0; linear features of fixed norm",
    compute=of_keys(NAME, make, SEEDS, {"steps": STEPS, "step size": RATE, "bound": BOUND}),
    keys=("run", "critic", "updates", "seed"),
    metrics=("final",),
    margins={
        "log10 of |Q| that counts as diverged": BEYOND,
        "growth of log10 |Q| that counts as none": MORE,
        "log10 of |Q| that counts as gone": GONE,
    },
    figure=Plot(
        "curves by arm", x="updates: updates per step", y="final: log10 of largest |Q| at the end",
        arm=("critic",), log="xy",
    ),
    systems=("FlashSAC",),
)  # fmt: skip


EXPERIMENT.claim(
    "a-plain-critic-diverges-the-more-the-more-it-updates",
    """On Baird's star an unbounded critic ends beyond |Q| = 100 at every ratio of updates from 1 to 32.""",
).compare("final", {"critic": "plain", "updates": RATIOS}, by=BEYOND)


EXPERIMENT.claim(
    "bounded-norms-hold-at-every-update-ratio",
    """With a bound on the weights' norm, or on it and the errors, log10 |Q| at the end is at 32 updates
    per step no more than 0.1 above that at 1 update.""",
).compare(
    "final",
    {"updates": 32.0},
    {"updates": 1.0},
    by=MORE,
    below=True,
    over={"critic": ("weight norm", "both")},
)


EXPERIMENT.claim(
    "bounded-norms-do-not-find-the-values",
    """What is bounded is not learned: with the bound on the weights |Q| still ends beyond 2, where the
    truth is 0, at 32 updates per step.""",
    source="this project",
).compare("final", {"critic": "weight norm", "updates": 32.0}, by=GONE)
