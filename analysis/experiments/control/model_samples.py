"""MAD-TD at high update ratios: a share of samples has the learner's actions and a model's outcomes."""

import numpy as np

from analysis.lab import Experiment, Grid, Plot, TunedArms, asks, by_world, inside, keys
from envs import infinite_horizon
from envs.mdps import garnet
from testbed.offline.tabular_offline import greedy

NAME = "model-samples"
SEEDS, PILOTS, STEPS, FEATURES, CUT = 768, 24, 1500, 32, 100.0
RATES: Grid = {
    "rate": (0.0002, 0.0004, 0.0008, 0.0016, 0.0031, 0.0063, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
}
SHARES = {"none": 0.0, "a twentieth": 0.05, "a fifth": 0.2, "resets": 0.0}
RESETS: Grid = {**RATES, "resets": (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)}
ARMS = {**dict.fromkeys(SHARES, RATES), "resets": RESETS}
"""Resets: how often the weights start anew in a run, after equal numbers of updates."""
MORE = 0.5
"""Value that counts, in units of reward; rewards of pairs have standard deviation 1."""


@by_world("over-estimation", "value")
def learn(seed: int, arm: str, updates: float, rate: float, resets: float = 0.0) -> tuple[float, float]:
    """Return max Q less the true value of the greedy policy, cut at 100, and that value.

    A seed is a random world with 32 random features for 64 pairs, so updates change the Q of untried actions.
    """
    from testbed.offline.replay_control import replay_q

    key_1 = keys((seed,), f"{NAME}/a step size at every ratio")
    rng = np.random.default_rng(key_1[0])
    world = garnet(discount=0.95, seed=int(rng.integers(2**31)), horizon=20, noise_std=1.0)
    feature_SAF = rng.normal(size=(16, 4, FEATURES)) / np.sqrt(FEATURES)
    q_1KSA, _ = replay_q(
        world, key_1, steps=STEPS, every=STEPS, feature_SAF=feature_SAF, epsilon=0.1, step_size=rate,
        model_share=SHARES[arm], updates=updates,
        reset_every=np.ceil(STEPS * updates / (1 + resets)) if resets else 0.0,
    )  # fmt: skip
    # A diverged critic counts as the largest over-estimation.
    q_1SA = np.nan_to_num(q_1KSA[:, -1], nan=1e9)
    pi_1SA = greedy(q_1SA)
    over_1S = q_1SA.max(-1) - infinite_horizon.state_value(world, pi_1SA)
    return np.clip(over_1S.mean(), -CUT, CUT), infinite_horizon.value(world, pi_1SA)[0]


TUNED = TunedArms(ARMS, learn, "value", PILOTS, {"updates": (1.0, 8.0, 32.0)})
EXPERIMENT: Experiment = TUNED.experiment(
    NAME, SEEDS, ("over-estimation", "value"), {"steps": STEPS, "features": FEATURES},
    question="At high update ratios, do model-made samples earn more than replay, and as much as resets?",
    source="Voelcker et al. (2025), MAD-TD: model-augmented data stabilizes high update ratio RL",
    differs="a linear critic on random MDPs; the model is a table of counts; each arm at the step size of "
    "the highest value at each number of updates",
    margins={"value that counts": MORE},
    figure=Plot(
        "final by setting", x="updates: updates per step", y="value: value of the greedy policy",
        arm=("arm: beside replay",),
        says="Shows the value of the greedy policy of a linear critic with half as many features as pairs, "
        "against updates per step of the world, on random MDPs: with replay alone (none), with a share of "
        "samples in which the action is the learner's own and the outcome a count model's, and with weights "
        "that start anew several times; each at the settings of the highest value.",
    ),
    systems={"MAD-TD": "each arm has its best step size, which is so small that none over-estimates; the "
             "claims are on values"},
)  # fmt: skip

OFTEN, SAID = {"updates": 32.0}, "At 32 updates per step, each at its best step size, "
asks(EXPERIMENT,
    ("model-made-samples-raise-the-value-of-32-updates", f"{SAID}5% of model-made samples reach a value 0.5 "
     "higher than replay alone.", "a twentieth", "none", {"by": MORE}),
    ("model-made-samples-do-without-resets", f"{SAID}5% of model-made samples reach a value at most 0.5 "
     "below that of a critic that is reset, as often as is best.", "a twentieth", "resets", {"by": -MORE}),
    outcome="value", over=OFTEN, gates={"tuned": inside(updates=32.0, arm=("none", "a twentieth", "resets"))},
)  # fmt: skip
