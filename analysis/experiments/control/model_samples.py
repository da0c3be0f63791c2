"""MAD-TD at high update ratios: a share of samples has the learner's actions and a model's outcomes."""

from typing import Any

import numpy as np

from analysis.lab import Experiment, Frame, Grid, Plot, TunedArms, asks, by_world, inside, keys
from envs import infinite_horizon
from envs.mdps import garnet
from testbed.offline.tabular_offline import greedy

NAME = "model-samples"
SEEDS, PILOTS, STEPS, FEATURES, CUT = 192, 24, 1500, 32, 100.0
RATES: Grid = {"rate": (0.0016, 0.0031, 0.0063, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)}
SHARES = {"none": 0.0, "a twentieth": 0.05, "a fifth": 0.2}
LESS, MORE = 2.0, 0.5
"""Over-estimation and value that count, in units of reward; rewards of pairs have standard deviation 1."""


@by_world("over-estimation", "value")
def learn(seed: int, arm: str, updates: float, rate: float) -> tuple[float, float]:
    """Return max Q less the true value of the greedy policy, cut at 100, and that value.

    A seed is a random world with 32 random features for 64 pairs, so updates change the Q of untried actions.
    """
    from testbed.offline.replay_control import replay_q

    key_1 = keys((seed,), f"{NAME}/one step size")
    rng = np.random.default_rng(key_1[0])
    world = garnet(discount=0.95, seed=int(rng.integers(2**31)), horizon=20, noise_std=1.0)
    feature_SAF = rng.normal(size=(16, 4, FEATURES)) / np.sqrt(FEATURES)
    q_1KSA, _ = replay_q(
        world, key_1, steps=STEPS, every=STEPS, feature_SAF=feature_SAF, epsilon=0.1, step_size=rate,
        model_share=SHARES[arm], updates=updates,
    )  # fmt: skip
    # A diverged critic counts as the largest over-estimation.
    q_1SA = np.nan_to_num(q_1KSA[:, -1], nan=1e9)
    pi_1SA = greedy(q_1SA)
    over_1S = q_1SA.max(-1) - infinite_horizon.state_value(world, pi_1SA)
    return np.clip(over_1S.mean(), -CUT, CUT), infinite_horizon.value(world, pi_1SA)[0]


class AtOneUpdate(TunedArms):
    """Each arm has the step size that is best at one update per step.

    With a step size tuned at every ratio, no arm over-estimates.
    """

    def setting(self, arm: str, *_: Any) -> tuple[dict[str, float], bool]:  # type: ignore[override]
        """Return an arm's setting at one update per step."""
        return super().setting(arm, 1.0)


TUNED = AtOneUpdate(dict.fromkeys(SHARES, RATES), learn, "value", PILOTS, {"updates": (1.0, 8.0, 32.0)})
EXPERIMENT: Experiment = TUNED.experiment(
    NAME, SEEDS, ("over-estimation", "value"), {"steps": STEPS, "features": FEATURES},
    question="Does a twentieth of model-made samples keep over-estimation bounded at high update ratios?",
    source="Voelcker et al. (2025), MAD-TD: model-augmented data stabilizes high update ratio RL",
    differs="a linear critic on random MDPs; the model is a table of counts; each arm at the step size of "
    "the highest value at one update per step; no resets as a rival",
    margins={"over-estimation that counts": LESS, "value that counts": MORE},
    figure=Plot(
        "final by setting", x="updates: updates per step", y="over-estimation",
        arm=("arm: model-made samples",),
        says="Shows by how much a linear critic with half as many features as pairs over-estimates its "
        "greedy policy, in units of reward, against updates per step of the world, on random MDPs, by the "
        "share of its samples in which the action is the learner's own and the outcome a count model's; each "
        "at the step size of the highest value at one update.",
    ),
    systems={"MAD-TD": "without model-made samples Q is too low at 32 updates, at the step size that is best "
             "at one and at the best of each ratio, so that there is no over-estimation to lower"},
)  # fmt: skip


def over_estimates(table: Frame) -> str:
    """Return "" if at 32 updates Q is too high without model-made samples, else by how much it is too low."""
    found = table.loc[(table["arm"] == "none") & (table["updates"] == 32.0), "over-estimation"].mean()
    return "" if found > 0 else f"without model-made samples Q is {-found:.1f} too low"


OFTEN, ONCE = {"updates": 32.0}, {"updates": 1.0}
SAID = "At the step size that is best at one update per step, "
asks(EXPERIMENT,
    ("model-made-samples-lower-over-estimation", f"{SAID}5% of model-made samples lower the over-estimation "
     "of 32 updates per step by more than 2.", "none", "a twentieth", {"over": OFTEN}),
    ("model-made-samples-bound-over-estimation", f"{SAID}the over-estimation with 5% of model-made samples "
     "is at 32 updates per step at most 2 above that at 1.", OFTEN, ONCE,
     {"over": {"arm": "a twentieth"}, "below": True}),
    ("model-made-samples-raise-the-value", f"{SAID}32 updates per step reach a value 0.5 higher with 5% of "
     "model-made samples.", "a twentieth", "none", {"over": OFTEN, "outcome": "value", "by": MORE}),
    outcome="over-estimation", by=LESS,
    gates={"tuned": inside(arm=("none", "a twentieth")), "headroom": over_estimates},
)  # fmt: skip
