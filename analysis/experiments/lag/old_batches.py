"""PPO on old data in one batch, or in 4 or 16 times as many smaller ones, clipped around an average or the
sampler.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from analysis.experiments.lag.batch_invariance import AVERAGED, EWMA
from analysis.experiments.lag.periodic_batches import METRICS
from analysis.lab import Frame, Groups, Part, Plot, inside, paired
from analysis.worlds.tuned_training import Family, Way, with_recipe
from testbed.config.run import Run

OLD = replace(AVERAGED, lag=8)
"""Data 1,024 responses old, four passes over every batch of 128."""
SIZES = {"128 responses": 1, "32 responses": 4, "8 responses": 16}
"""Size of a batch, and how many make up the whole one."""
DECAYS, CLIPS = (0.333, 0.5, 0.667, 0.8, 0.889, 0.941, 0.97), (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Decays of the average at the whole batch; smaller batches rescale them."""
RATES = (1e-3, 1.8e-3, 3e-3, 5.6e-3)
"""Rates that are tried first, at the whole batch; smaller ones begin at these divided by the root of c."""


def averaged(decay: float) -> Run:
    """Return PPO around a moving average of the weights, at clips of .2."""
    return replace(OLD, anchor_args=(("decay", decay),))


def sampler(clip: float) -> Run:
    """Return PPO around the policy that wrote the data."""
    return with_recipe(OLD, "decoupled", "eps_low+eps_high", anchor="behavior", anchor_args=())(clip)


def _cut(value: float, at: Callable[[float], Run], parts: int) -> Run:
    from testbed.anchors.rescale import smaller_batches  # loads torch

    return smaller_batches(at(value), parts)


BATCHES = Family({
    f"{name}, {size}": Way(
        partial(_cut, at=at, parts=parts), ladder,
        rates=tuple(float(f"{rate / parts ** 0.5:.2g}") for rate in RATES), pilots=6,
    )
    for size, parts in SIZES.items()
    for name, at, ladder in (("averaged", averaged, DECAYS), ("sampler", sampler, CLIPS))
}, by="area")  # fmt: skip
SEEDS, LATER = 32, 90_000
"""Seeds of a run, offset past those of other tables."""

EXPERIMENT = BATCHES.experiment(
    METRICS,
    SEEDS,
    first=LATER,
    question="On old data, does PPO learn more around an average of weights, at any batch size?",
    source=EWMA,
    differs="a transformer of 7,000 weights, sums of 6 digits; 4,096 responses, each used in four passes",
    figure=Plot(
        "strips",
        x="area: mean accuracy along the run",
        y="arm",
        says="Shows mean accuracy along 4,096 responses of toy transformers that sum six digits from data "
        "1,024 responses old; the samples come in batches of 128, 32 or 8; PPO clips around the policy that "
        "wrote them (sampler) or around a moving average of the weights (averaged), each at its best rate "
        "and clip or decay.",
    ),
    systems={"Batch-size invariance (PPO-EWMA)": Part("the better use of old data")},
)


def gain_when_old(table: Frame) -> Groups:
    """Return the average's lead over the sampler along the run at each size of batch, by seed."""
    pairs = {size: [{"arm": f"{name}, {size}"} for name in ("averaged", "sampler")] for size in SIZES}
    return {size: paired(table, "area", one, other) for size, (one, other) in pairs.items()}


EXPERIMENT.claim(
    "ppo-ewma-is-above-ppo-on-old-data-at-any-batch-size",
    "On data 1,024 responses old, PPO clipped around an average of earlier weights has a higher mean "
    "accuracy along the run than PPO clipped around the sampler, at the whole batch, a 4th and a 16th, each "
    "at its best rate and decay or clip.",
    gates={"tuned": inside()},
).compare(gain_when_old)
