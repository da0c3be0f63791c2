"""ARB: from offline to online learning with replay that prefers likely trajectories of the current policy."""

from functools import cache
from typing import Any

import numpy as np

from analysis.lab import Floats, Grid, Plot, TunedArms, ask, by_world, keys
from envs import infinite_horizon
from envs.finite_mdp import FiniteMDP
from envs.logged_data import collect, skilled
from envs.mdps import garnet
from testbed.offline.tabular_offline import greedy, optimal_q

NAME = "on-policy-replay"
SEEDS, WORLDS, PILOTS, STEPS, FEATURES, EPISODES, EARLY = 64, 16, 96, 2000, 32, 50, 10
"""Units of a run, and the worlds of which each is the mean; pilot worlds."""
RATES = tuple(0.0008 * 2**i for i in range(11))
ARMS: dict[str, Grid] = {
    "uniform": {"rate": RATES},
    "on-policy": {"rate": RATES, "power": (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)},
}
"""Step size online, and the power of the geometric mean of a trajectory's current probabilities, as which its
steps are drawn; 0 is uniform replay. The source divides by a temperature, 5 or 0.2 to 5: the inverse."""
LESS = 0.02
"""Share of the best value."""


@cache
def begun(seed: int, quality: float) -> tuple[FiniteMDP, dict[str, Any], Floats, Floats]:
    """Return a world, its features and log, Q after offline learning, and the best policy."""
    from testbed.offline.replay_control import replay_q

    one = keys((seed,), f"{NAME}/finer")
    rng = np.random.default_rng(one[0])
    world = garnet(discount=0.9, seed=int(rng.integers(2**31)), horizon=20)
    feature_SAF = rng.normal(size=(16, 4, FEATURES)) / np.sqrt(FEATURES)
    best_1SA = greedy(optimal_q(world))
    log = collect(world, skilled(best_1SA[0], quality)[None, None], EPISODES, one)
    common: dict[str, Any] = {"feature_SAF": feature_SAF, "offline": log}
    how: dict[str, Any] = {"steps": 1, "every": 1, "updates": 4000.0, "epsilon": 0.0, "step_size": 0.05}
    return world, common, replay_q(world, one, **how, **common)[0], best_1SA


@by_world("early loss", "mean value", "late value")
def learn(seed: int, _arm: str, quality: float, rate: float, power: float = 0.0) -> tuple[float, ...]:
    """Return the deepest early loss of value, and values along and late, as shares of the best.

    In a random world a linear critic (32 features of 64 pairs) makes 4000 updates on 50 logged episodes
    alone, then 2 updates on each of 2000 steps from a buffer of both.
    """
    from testbed.offline.replay_control import replay_q

    world, common, before, best_1SA = begun(seed, quality)
    # Online learning starts from the weights of the offline Q, which is linear in the features.
    fitted_FX = np.linalg.pinv(common["feature_SAF"].reshape(-1, FEATURES))
    q_1KSA, _ = replay_q(
        world, keys((seed,), f"{NAME}/finer"), steps=STEPS, every=50,
        initial=before[:, 0].reshape(1, -1) @ fitted_FX.T, updates=2.0, epsilon=0.1, step_size=rate,
        on_policy=power, **common,
    )  # fmt: skip
    top = infinite_horizon.value(world, best_1SA)
    start_1K, value_1K = (infinite_horizon.value(world, greedy(x)) / top for x in (before, q_1KSA))
    early = start_1K[0, 0] - value_1K[0, :EARLY].min()
    return early, value_1K[0].mean(), value_1K[0, -20:].mean()


EXPERIMENT = TunedArms(
    ARMS, learn, "mean value", PILOTS, {"quality": (0.0, 0.5)},
    starts={"on-policy": {"rate": RATES[6], "power": 1.0}},
).experiment(
    NAME, SEEDS, ("early loss", "mean value", "late value"), {"steps": STEPS, "features": FEATURES},
    WORLDS,
    question="Does replay that prefers on-policy trajectories soften the drop after offline learning?",
    source="ARB, arXiv:2512.10510",
    differs="a linear critic on random MDPs; weights are new at every draw, new steps have no bonus; each "
    "arm at the settings with the highest mean value online",
    margins={"share of the value that counts as less lost": LESS},
    figure=Plot(
        "distribution", x="quality: logger's share of best actions",
        y="early loss: deepest early loss of value", arm=("arm: replay",),
        says="Shows the deepest fall of value, as a share of the best, early in online learning after "
        "offline learning of a linear critic on random MDPs: replay is uniform, or on-policy, which prefers "
        "trajectories that the current policy makes likely; each at the settings with the highest mean value "
        "online; the logger's other actions are random.",
    ),
    systems={"ARB (Adaptive Replay Buffer)": "the early drop; mean value online is .04 and .08 higher with "
             "on-policy replay"},
)  # fmt: skip

ask(EXPERIMENT, "on-policy-replay-softens-the-drop-from-offline-to-online", "Drawing steps as a power of the "
    "geometric mean of their trajectory's current probabilities makes the deepest early loss smaller by 0.02 "
    "of the best value, with random and with half-skilled loggers, each at its best settings for the mean "
    "value online.", "uniform", "on-policy", LESS, "early loss", over={"quality": (0.0, 0.5)})  # fmt: skip
