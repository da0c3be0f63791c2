"""ARB: from offline to online learning with replay that prefers likely trajectories of the current policy."""

import numpy as np

from analysis.lab import Experiment, Keys, Plot, Rows, ask, combinations, of_keys
from envs import infinite_horizon
from envs.logged_data import collect, skilled
from envs.mdps import garnet
from testbed.offline.tabular_offline import greedy, optimal_q

NAME = "on-policy-replay"
SEEDS, STEPS, FEATURES, EPISODES, EARLY = 256, 2000, 32, 50, 10
POWERS = (0.0, 0.25, 1.0, 2.0)
"""Powers of the geometric mean of a trajectory's current probabilities by which its steps are drawn; 0 is
uniform replay. The source has a temperature of 5 or 0.2 to 5, the inverse of the power."""
LESS = 0.02
"""Margins, shares of the best value."""


def make(key_R: Keys) -> Rows:
    """Yield the largest early loss of value and the final value, as shares of the best, by seed.

    In a random world a linear critic (32 features of 64 pairs) makes 4000 updates on 50 logged episodes
    alone, then 2 updates on each of 2000 steps from a buffer of both.
    """
    from testbed.offline.replay_control import replay_q

    for seed, key in enumerate(key_R):
        rng = np.random.default_rng(key)
        world = garnet(discount=0.9, seed=int(rng.integers(2**31)), horizon=20)
        feature_SAF = rng.normal(size=(16, 4, FEATURES)) / np.sqrt(FEATURES)
        best_1SA = greedy(optimal_q(world))
        frame, key_N = combinations(np.array([key]), quality=[0.0, 0.5], power=POWERS)
        log = collect(world, skilled(best_1SA[0], frame["quality"].to_numpy())[:, None], EPISODES, key_N)
        common = {"feature_SAF": feature_SAF, "offline": log, "step_size": 0.05}
        before, _ = replay_q(world, key_N, steps=1, every=1, updates=4000.0, epsilon=0.0, **common)
        fitted_FX = np.linalg.pinv(feature_SAF.reshape(-1, FEATURES))
        q_RKSA, _ = replay_q(
            world, key_N, steps=STEPS, every=50, initial=before[:, 0].reshape(len(frame), -1) @ fitted_FX.T,
            updates=2.0, epsilon=0.1, on_policy=frame["power"].to_numpy(), **common,
        )  # fmt: skip
        top = infinite_horizon.value(world, best_1SA)
        start_RK, value_RK = (infinite_horizon.value(world, greedy(x)) / top for x in (before, q_RKSA))
        frame["early loss"] = start_RK[:, 0] - value_RK[:, :EARLY].min(-1)
        yield frame.assign(seed=seed, **{"late value": value_RK[:, -20:].mean(-1)})


EXPERIMENT = Experiment(
    question="Does replay that prefers on-policy trajectories soften the drop after offline learning?",
    source="ARB, arXiv:2512.10510",
    differs="a linear critic on random MDPs; weights are recomputed at every draw, new steps get no bonus",
    compute=of_keys(NAME, make, SEEDS, {"steps": STEPS, "features": FEATURES}),
    keys=("run", "quality", "power", "seed"), metrics=("early loss", "late value"),
    margins={"share of the value that counts as less lost": LESS},
    figure=Plot(
        "final by setting", x="power: power of the policy in replay",
        y="early loss: deepest early loss of value", arm=("quality",),
        says="Shows the largest fall of value, as a share of the best, early in online learning after "
        "offline learning, for a linear critic on random MDPs; power 0 replays all steps alike, higher "
        "powers prefer trajectories that the current policy makes likely; quality is the logger's share of "
        "best actions; the rest are random.",
    ),
    systems=("ARB (Adaptive Replay Buffer)",),
)  # fmt: skip

ask(EXPERIMENT, "on-policy-replay-softens-the-drop-from-offline-to-online", "Drawing steps as the geometric "
    "mean of their trajectory's current probabilities makes the deepest early loss smaller by 0.02 of the "
    "best value, with random and with half-skilled loggers.", {"power": 0.0}, {"power": 1.0}, LESS,
    "early loss", over={"quality": (0.0, 0.5)})  # fmt: skip
