"""AReaL's staleness table in a world that needs a trust region: PPO with a decoupled clip, and without.

Margins were set before the table was made; world, learning rate and passes were chosen on other seeds (100 to
123).
"""

from analysis.lab import Experiment, Plot
from testbed.config.run import Run, grid

NOISY = Run(
    task="bandit",
    task_args=(("contexts", 8),),
    recipe="decoupled",
    recipe_args=(("passes", 8),),
    prompts=4,
    group=8,
    steps=100,
    learning_rate=10.0,
)
"""Eight bandits of ten Bernoulli arms, 32 pulls per batch, eight passes over it: unclipped, it overfits."""

LAGS = (0, 1, 2, 4, 8, 16)
AREAL = "Fu et al. (2025), AReaL, arXiv:2505.24298, table over the admitted staleness"
FLAT = 0.012
"""Loss of final value that still counts as flat: 1.2 points, AReaL's from lag 0 (42.0) to their lag 8."""
SIX = 0.06
VALUE = "exact/value"


def cells() -> tuple[Run, ...]:
    """PPO clipped around mu (coupled) or around the weights at the start of the step, 6 lags, 64 seeds."""
    return grid(NOISY, anchor=["behavior", "recompute"], lag=LAGS, seed=range(64))


EXPERIMENT = Experiment(
    "areal-lag",
    question="Does a decoupled clip keep PPO flat up to a lag of 8, and a coupled one not?",
    source="Fu et al. (2025), AReaL, arXiv:2505.24298, the table over the admitted staleness",
    differs="eight bandits of ten arms in place of a language model; every sample has the same exact lag",
    cells=cells,
    fresh=range(1000, 1032),
    keys=("anchor", "lag", "seed"),
    metrics=("exact/value", "mean actor/clip_share_last_pass"),
    margins={"loss of final value that counts as flat": FLAT, "six points of final value": SIX},
    figure=Plot(
        "final by setting", x="lag: lag (optimizer steps)", y=f"{VALUE}: final exact value", arm=("anchor",)
    ),
)


FRESH, OLD = {"lag": 0}, {"lag": 8}

EXPERIMENT.claim(
    "decoupled-ppo-is-flat-to-lag-8",
    "Decoupled PPO, its anchor recomputed, loses less than 1.2 points of final value up to lag 8.",
    source=AREAL,
).compare(
    VALUE,
    FRESH,
    {"lag": LAGS[1:5]},
    by=FLAT,
    below=True,
    over={"anchor": "recompute"},
    typical="mean",
)
EXPERIMENT.claim(
    "coupled-ppo-is-not-flat-to-lag-8",
    "PPO clipped around the behavior policy loses more than 1.2 points of final value at lag 8.",
    source=AREAL,
).compare(VALUE, FRESH, OLD, by=FLAT, over={"anchor": "behavior"}, typical="mean")
EXPERIMENT.claim(
    "coupled-ppo-loses-six-points-from-lag-4",
    "PPO clipped around the behavior policy loses at least 6 points of final value from lag 4 on.",
    source=AREAL,
).compare(VALUE, FRESH, {"lag": LAGS[3:]}, by=SIX, over={"anchor": "behavior"}, typical="mean")
