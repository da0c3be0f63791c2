"""MAD-TD at high update ratios: a share of samples has the learner's actions and a model's outcomes."""

import numpy as np

from analysis.lab import Experiment, Keys, Plot, Rows, asks, combinations, of_keys
from envs import infinite_horizon
from envs.mdps import garnet
from testbed.offline.tabular_offline import greedy

NAME = "model-samples"
SEEDS, STEPS, FEATURES, CUT = 256, 1500, 32, 100.0
LESS = 2.0
"""Over-estimation that counts, in units of reward; rewards of pairs have standard deviation 1."""


def make(key_R: Keys) -> Rows:
    """Yield max Q minus the true value of the greedy policy of a linear critic, mean over states, at most
    100.

    Each seed is a random world with 32 random features for 64 pairs, so updates change the Q of untried
    actions.
    """
    from testbed.offline.replay_control import replay_q

    for seed, key in enumerate(key_R):
        rng = np.random.default_rng(key)
        world = garnet(discount=0.95, seed=int(rng.integers(2**31)), horizon=20, noise_std=1.0)
        feature_SAF = rng.normal(size=(16, 4, FEATURES)) / np.sqrt(FEATURES)
        frame, key_N = combinations(np.array([key]), share=[0.0, 0.05, 0.2], updates=[1.0, 8.0, 32.0])
        q_RKSA, _ = replay_q(
            world, key_N, steps=STEPS, every=STEPS, feature_SAF=feature_SAF, epsilon=0.1, step_size=0.3,
            model_share=frame["share"].to_numpy(), updates=frame["updates"].to_numpy(),
        )  # fmt: skip
        q_RSA = np.nan_to_num(q_RKSA[:, -1], nan=1e9)
        pi_RSA = greedy(q_RSA)
        over_RS = q_RSA.max(-1) - infinite_horizon.state_value(world, pi_RSA)
        frame["over-estimation"] = np.clip(over_RS.mean(-1), -CUT, CUT)
        yield frame.assign(seed=seed, value=infinite_horizon.value(world, pi_RSA))


EXPERIMENT = Experiment(
    question="Does a twentieth of model-made samples keep over-estimation bounded at high update ratios?",
    source="Voelcker et al. (2025), MAD-TD: model-augmented data stabilizes high update ratio RL",
    differs="a linear critic on random MDPs; the model is a table of counts",
    compute=of_keys(NAME, make, SEEDS, {"steps": STEPS, "features": FEATURES}),
    keys=("run", "share", "updates", "seed"), metrics=("over-estimation", "value"),
    margins={"over-estimation that counts as less": LESS, "over-estimation that counts as bounded": LESS},
    figure=Plot(
        "final by setting", x="updates: updates per step", y="over-estimation", arm=("share",),
        says="Shows how much a linear critic with half as many features as pairs over-estimates its greedy "
        "policy, in units of reward, against updates per step of the world, on random MDPs; share is the "
        "part of its samples in which the learner chooses the action and a count model the outcome.",
    ),
    systems=("MAD-TD",),
)  # fmt: skip

OFTEN, ONCE = {"updates": 32.0}, {"updates": 1.0}
asks(EXPERIMENT,
    ("a-twentieth-of-model-made-samples-lowers-over-estimation", "At 32 updates per step 5% of model-made "
     "samples lower the over-estimation by more than 2.", {"share": 0.0}, {"share": 0.05}, {"over": OFTEN}),
    ("a-twentieth-of-model-made-samples-bounds-over-estimation", "With 5% of model-made samples the "
     "over-estimation is at 32 updates per step at most 2 above that at 1.", OFTEN, ONCE,
     {"over": {"share": 0.05}, "below": True}),
    outcome="over-estimation", by=LESS,
)  # fmt: skip
