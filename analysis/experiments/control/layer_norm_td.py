"""PQN: parallel Q-learning without replay, against one copy with replay and a target network."""

from functools import cache

import numpy as np

from analysis.lab import Grid, Part, Plot, TunedArms, ask, by_world, keys
from analysis.worlds.offline_worlds import chance_and_best
from envs import infinite_horizon
from envs.finite_mdp import FiniteMDP
from envs.mdps import garnet
from testbed.offline.tabular_offline import greedy

NAME = "layer-norm-td"
SEEDS, PILOTS, UPDATES, EVERY, BATCH = 96, 12, 500, 25, 64
SCORE = 0.02
"""Margin of the mean score over training, 1 being the optimum's lead over the uniform policy. Set before the
table was made, as the grids were."""
RATE = {"step_size": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)}
SLOWER = {"step_size": (0.01, 0.03, *RATE["step_size"])}
WAITS = {"target_every": (10.0, 30.0, 100.0, 200.0, 300.0, 500.0)}
ARMS: dict[str, Grid] = {
    "parallel copies": RATE,
    "one copy": RATE,
    "replay": SLOWER,
    "replay and target": {**SLOWER, **WAITS},
    "replay, as many steps": SLOWER,
    "replay and target, as many steps": {**SLOWER, **WAITS},
}
"""Each arm makes 500 updates: from the steps of 64 copies, from the steps of one copy, or from 64 replayed
steps of one copy. In arms with as many steps, the single copy makes 64 steps before each update. A target
network with period 500 never leaves the start."""


@cache
def given(seed: int) -> tuple[FiniteMDP, float, float]:
    """Return a world, and the values of the uniform policy and of the best."""
    world = garnet(states=16, actions=4, discount=0.9, seed=seed, horizon=20)
    return world, *chance_and_best(world)


@by_world("score")
def learn(seed: int, arm: str, step_size: float, target_every: float = 0.0) -> float:
    """Return the score of the greedy policy, mean over 20 evaluations in training; Q is a table."""
    from analysis.kernels.linear_td import parallel_q
    from testbed.offline.replay_control import replay_q

    (world, low, high), key_1 = given(seed), keys((seed,), NAME)
    if arm.startswith("replay"):
        made = BATCH if "as many steps" in arm else 1
        q_KSA = replay_q(
            world, key_1, steps=UPDATES * made, every=EVERY * made, updates=1 / made, batch=BATCH,
            step_size=step_size, target_every=target_every, epsilon=0.3,
        )[0][0]  # fmt: skip
    else:
        q_KSA = parallel_q(
            world, np.eye(64).reshape(16, 4, 64), key_1, players=BATCH if arm == "parallel copies" else 1,
            steps=UPDATES, every=EVERY, step_size=step_size, epsilon=0.3,
        )[:, 0].reshape(-1, 16, 4)  # fmt: skip
    value_K = infinite_horizon.value(world, greedy(np.nan_to_num(q_KSA)))
    return float(((value_K - low) / (high - low)).mean())


EXPERIMENT = TunedArms(ARMS, learn, "score", PILOTS).experiment(
    NAME, SEEDS, ("score",), {"updates": UPDATES},
    question="Does LayerNorm with l2 stabilize TD, and do parallel copies replace replay and target network?",
    source="Gallici et al. (2025), Simplifying deep temporal difference learning",
    differs="a table; time is counted in updates, and one copy makes few steps; a unit test shows that "
    "LayerNorm bounds the l2 penalty which linear TD needs",
    margins={"score": SCORE},
    figure=Plot(
        "strips", x="score: mean score over training", y="arm",
        says="Shows the score (0 the uniform policy, 1 the optimum), averaged over 500 updates of tabular "
        "Q-learning on random MDPs; an update reads a step of each of 64 parallel copies of the world, a "
        "step of one copy, or 64 replayed steps of one copy, without or with a target network; at equal "
        "environment steps, that copy makes 64 steps before each update.",
    ),
    systems={"PQN (Simplifying deep TD)": Part("tables without LayerNorm; time is not measured")},
)  # fmt: skip
ask(EXPERIMENT, "parallel-copies-replace-replay-of-as-many-steps", "In as many updates and as many steps of "
    "the world, parallel copies without replay or target network have a mean score over training at most "
    "0.02 below one copy with replay, with and without a target network, all tuned; in tables, without "
    "LayerNorm.", "parallel copies", ("replay, as many steps", "replay and target, as many steps"), -SCORE,
    "score")  # fmt: skip
