"""TOPR on old data with other baselines, beside its rivals."""

from dataclasses import replace

from analysis.lab import Experiment, Floats, Frame, Part, Plot, Stop, Tuned, paired
from analysis.sweeps.base_runs import LITE
from analysis.tables.cell_table import arms_of
from testbed.config.run import Run

LOST = 0.1
"""Smallest loss of accuracy at which a baseline counts as breaking TOPR. Set before the sweep was run."""
LAG = 128
RIVALS = {
    "TOPR": Run(recipe="topr", recipe_args=(("baseline", 0.5),)),
    "naive REINFORCE": Run(recipe="topr", recipe_args=(("baseline", 0.5), ("low", 1))),
    "positives alone": Run(recipe="topr", recipe_args=(("baseline", 0),)),
    "importance sampling": Run(recipe="importance"),
}
BASELINES = {
    f"TOPR, {c:+g}": Run(recipe="topr", recipe_args=(("baseline", 0.5 + c / 2),)) for c in (-0.5, 0.25, 0.5)
}
"""Baselines that TOPR subtracts from rewards of -1 and +1; 0 is not named in labels."""
OLD = {"staleness": "exact"}
ARMS = arms_of((*RIVALS, *BASELINES), (*RIVALS.values(), *BASELINES.values()), ("recipe", "recipe_args"))


def cells() -> tuple[Run, ...]:
    """TOPR, its untapered form, positives alone, importance weights; TOPR with other baselines."""
    old, offline = replace(LITE, lag=LAG), replace(LITE, staleness="offline")
    return tuple(
        replace(base, recipe=arm.recipe, recipe_args=arm.recipe_args)
        for base, arms in ((old, {**RIVALS, **BASELINES}), (offline, RIVALS))
        for arm in arms.values()
    )


EXPERIMENT = Experiment(
    question="Do tapered negatives make old data safe and useful, and which baseline breaks them?",
    source="TOPR, Le Roux et al. (2025), arXiv:2503.14286",
    differs="a transformer of 7,000 weights, sums of 6 digits, 300 steps of 32 responses; each arm at its "
    "own rate",
    cells=cells, tuned=Tuned(), stop=Stop(block=16, cap=32),
    keys=("staleness", "recipe", "recipe_args", "seed"),
    metrics=(
        *("accuracy", "best", "start", "area", "collapsed", "val/entropy", "known actor/positive_share"),
        "mean actor/learning_rate",
    ),
    margins={"accuracy, or share of the mass, that counts as lost": LOST},
    figure=Plot(
        "strips", x="accuracy", y="recipe_args", where={"staleness": "exact"},
        names={str(arm["recipe_args"]): name for name, arm in ARMS.items()},
        x_label=f"final accuracy at lag {LAG}", y_label="negatives and baseline",
        says="Shows final accuracy of a transformer of 7,000 weights on sums of six digits, on data 128 "
        "steps old, each arm at its best rate; TOPR weights successes by 1 and failures by the sequence "
        "ratio, at most 1; rewards are -1 and 1 minus the baseline in the arm's name (none: 0); naive "
        "REINFORCE weights failures by 1, positives alone drops them, and importance sampling weights every "
        "sequence by its whole ratio.",
    ),
    systems={"TOPR": Part("its baseline, no larger model")},
)  # fmt: skip


def loss(table: Frame) -> Floats:
    """Return the accuracy lost with a baseline of -0.5; this needs no room above the other arm."""
    return paired(table, "accuracy", {**ARMS["TOPR"], **OLD}, {**ARMS["TOPR, -0.5"], **OLD})


EXPERIMENT.claim(
    "a-baseline-of-minus-half-breaks-topr",
    "At lag 128, TOPR with a baseline of -0.5 ends more than 0.1 below TOPR without one, on most seeds.",
).compare(loss, by=LOST)
EXPERIMENT.claim(
    "the-baseline-sets-the-share-of-positives",
    "At lag 128, positives have 0.1 more of TOPR's gradient mass with a baseline of -0.5 than with one of "
    "+0.5, on most seeds.",
).compare("known actor/positive_share", ARMS["TOPR, -0.5"], ARMS["TOPR, +0.5"], by=LOST, over=OLD)
