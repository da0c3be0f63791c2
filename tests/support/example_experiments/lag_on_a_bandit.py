"""A bandit learned from old pulls: the smallest experiment that is complete."""

from analysis.lab import Evidence, Experiment, Plot, exact
from testbed.config.run import Run, grid

BANDIT = Run(task="bandit", recipe="reinforce", prompts=4, group=4, steps=30, learning_rate=1.0, log_every=1)
VALUE = "mean exact/value"
MARGIN = 0.02
"""Mean value over training. Set before the table was made."""


def cells() -> tuple[Run, ...]:
    """REINFORCE at two lags, 6 seeds."""
    return grid(BANDIT, lag=[0, 8], seed=range(6))


EXPERIMENT = Experiment(
    "lag-on-a-bandit",
    question="Does a lag of 8 steps slow REINFORCE down on a bandit?",
    source="this project",
    cells=cells,
    keys=("lag", "seed"),
    metrics=(VALUE, "first exact/value", "mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
    margins={"mean value over training that counts as slower": MARGIN},
    figure=Plot("final by setting", x="lag", y=VALUE),
)


EXPERIMENT.claim(
    "lag-slows-a-bandit", "At lag 8 the mean value over training is lower by 0.02, in the median."
).compare(VALUE, {"lag": 0}, {"lag": 8}, by=MARGIN)

EXPERIMENT.claim(
    "lag-starts-alike", "Before the first update lag changes the value by under 0.02, in the median."
).equal("first exact/value", {"lag": 8}, {"lag": 0}, within=MARGIN)


@EXPERIMENT.claim()
def every_sample_is_as_old_as_the_lag() -> Evidence:
    """All samples of a cell have its lag as age."""
    from testbed.staleness import plan_for

    ages = {cell.lag: plan_for(cell).distribution for cell in cells()}
    gaps = [abs(age.mean - lag) + age.variance for lag, age in ages.items()]
    return exact(gaps, 0.0, "largest distance of the mean age from the lag, plus its variance")
