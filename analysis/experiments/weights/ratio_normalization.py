"""Ratios of denoising steps: averaged over dimensions a clip fires on one side alone; GRPO-Guard's do not."""

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, exact, short_of
from analysis.tables.committed import Table
from envs.arrays import Floats

NAME = "ratio-normalization"
STEPS, DIMS, SHIFT = 10, 4096, 0.02
EPS = 1e-4
"""Of the clip; ratios of averages lie close to 1."""
SIGMA_T = np.linspace(1.0, 0.1, STEPS)
"""Noise of the steps, falling."""


def laws() -> dict[str, tuple[Floats, Floats]]:
    """Return the laws of the log-ratio, [T] each: summed over dimensions, averaged, and normalized."""
    from testbed.exact.step_ratios import log_ratio_law, normalized

    shift_T = np.full(STEPS, SHIFT)
    averaged = log_ratio_law(shift_T, SIGMA_T, DIMS)
    found = {"summed": log_ratio_law(shift_T, SIGMA_T, DIMS, averaged=False), "averaged": averaged}
    return {**found, "normalized": normalized(averaged, float(averaged[1].mean()))}


def compute() -> Table:
    """Return mean, deviation and chances of both clips, a row per kind of ratio and step."""
    from testbed.exact.step_ratios import clip_hits

    rows = []
    for name, law in laws().items():
        above_T, below_T = clip_hits(law, EPS)
        for t in range(STEPS):
            rows.append((name, t + 1, law[0][t], law[1][t], above_T[t], below_T[t]))
    frame = pd.DataFrame(rows, columns=["ratio", "step", "mean", "deviation", "above", "below"])
    return Table.of(NAME, frame, {"dims": DIMS, "shift": SHIFT, "eps": EPS})


EXPERIMENT = Experiment(
    NAME,
    question="Does the upper clip never fire on denoising steps, and does normalizing each step mend that?",
    source="GRPO-Guard (2025), arXiv:2510.22319",
    differs="Gaussian steps with a common shift; the clip alone, no images, no over-optimization",
    compute=compute,
    keys=("ratio", "step"),
    metrics=("mean", "deviation", "above", "below"),
    figure=Plot("curves by arm", x="step", y="above", arm=("ratio",), y_label="P(ratio above its bound)"),
    systems={"GRPO-Guard": Part("the upper clip and what mends it; training: see denoising-training")},
)


@EXPERIMENT.claim(
    "averaged-ratios-rarely-meet-the-upper-clip",
    statement=(
        "Averaged over 4,096 dimensions the log-ratio's mean is negative at every step and its deviation "
        "grows tenfold as the noise falls: the upper clip fires with chance .17 at the first step and below "
        "1e-3 at the last two, the lower one with .63 and above .99. Normalized, both fire alike at every "
        "step."
    ),
    kind="enumerated",
)
def one_sided() -> Evidence:
    """Return misses of each of these."""
    from testbed.exact.step_ratios import clip_hits

    found = laws()
    (mean_T, std_T), (above_T, below_T) = found["averaged"], clip_hits(found["averaged"], EPS)
    both = clip_hits(found["normalized"], EPS)
    gaps = [max(0.0, float(mean_T.max())), abs(float(std_T[-1] / std_T[0]) - 10.0)]
    gaps += [max(0.0, abs(above_T[0] - 0.17) - 0.005), max(0.0, abs(below_T[0] - 0.63) - 0.005)]
    gaps += [max(0.0, float(above_T[-2:].max()) - 1e-3), short_of(float(below_T[-2:].min()), 0.99)]
    gaps += [
        float(np.abs(both[0] - both[1]).max()),
        float(np.ptp(both[0])),
        short_of(float(both[0].min()), 0.01),
    ]
    return exact(gaps, 1e-9, "largest miss of a sign, a chance or their equality")


@EXPERIMENT.claim(
    "ratios-with-a-negative-log-mean-still-average-one",
    source="derived here",
    statement=(
        "Summed over dimensions the ratio's mean is exactly 1, averaged it is below 1 by (1 - 1/D) shift^2 "
        "/ (2 sigma^2) in the log. A mean of 1 does not make the clip two-sided: the lower one fires more "
        "often than the upper one at every step of either, here by a factor of 2 at least."
    ),
)
def mean_one() -> Evidence:
    """Return distances of the log of the ratios' means from 0 and the formula, and misses of the factor."""
    from testbed.exact.step_ratios import clip_hits, log_ratio_law

    hits = [clip_hits(laws()[name], EPS) for name in ("summed", "averaged")]
    gaps = [short_of(float((below_T / above_T).min()), 2.0) for above_T, below_T in hits]
    for dims in (1, 16, 4096):
        for averaged in (False, True):
            mean_T, std_T = log_ratio_law(np.full(STEPS, SHIFT), SIGMA_T, dims, averaged)
            wanted_T = -(1 - 1 / dims) * (SHIFT / SIGMA_T) ** 2 / 2 if averaged else np.zeros(STEPS)
            gaps.append(np.abs(mean_T + std_T**2 / 2 - wanted_T).max())
    return exact(gaps, 1e-12, "largest distance of log E[ratio] from its formula, D = 1, 16, 4096")
