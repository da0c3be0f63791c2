"""TOPR against its rivals on old data, and against itself with other baselines."""

from collections.abc import Iterator
from functools import partial

from analysis.experiments.lag.class_rates import BASELINES, KEYS, NAME, NEGATIVES, TOPR_LAG, topr_cells
from analysis.lab import Check, Experiment, Plot, Stop, above, declare, named, steady
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

LOST = 0.1
"""Accuracy that a baseline costs for it to have broken TOPR. Set before the sweep was run."""
KINDS = {f"at lag {TOPR_LAG}": {"staleness": "exact"}, "offline": {"staleness": "offline"}}
OLD = named({**NEGATIVES, **BASELINES}, **KINDS[f"at lag {TOPR_LAG}"])


def cells() -> tuple[Run, ...]:
    """TOPR, untapered and no negatives and importance weights on old data, and TOPR with other baselines."""
    return tuned(topr_cells(), NAME, KEYS)


def claims() -> Iterator[tuple[str, str, Check]]:
    """Yield what the source says of negatives, tapered or not, and of the baseline."""
    for kind, where in KINDS.items():
        found, slug = named(NEGATIVES, **where), kind.replace(" ", "-")
        topr = found["TOPR"]
        yield (
            f"topr-holds-without-kl-{slug}",
            f"{kind.capitalize()}, TOPR collapses on less than half of all seeds, without a KL term.",
            partial(steady, where=topr),
        )
        for rival in ("naive REINFORCE", "positives alone", "importance sampling"):
            yield (
                f"topr-beats-{rival.lower().replace(' ', '-')}-{slug}",
                f"{kind.capitalize()}, TOPR ends with a higher accuracy than {rival}, on most seeds.",
                partial(above, pair={"TOPR": topr, rival: found[rival]}),
            )
    for name, words in (("TOPR, +0.5", "plus-half"), ("TOPR, -0.5", "minus-half")):
        yield (
            f"a-baseline-of-{words}-breaks-topr",
            f"At lag {TOPR_LAG}, TOPR with a baseline of {name[-4:]} ends more than 0.1 below TOPR without "
            "one, on most seeds.",
            partial(above, pair={"TOPR": OLD["TOPR"], name: OLD[name]}, margin=LOST),
        )
    yield (
        "the-baseline-sets-the-share-of-positives",
        f"At lag {TOPR_LAG}, positives have 0.1 more of TOPR's gradient mass with a baseline of -0.5 than "
        "with one of +0.5, on most seeds.",
        partial(
            above,
            pair={name: OLD[name] for name in ("TOPR, -0.5", "TOPR, +0.5")},
            outcome="known actor/positive_share",
            margin=LOST,
        ),
    )


EXPERIMENT = Experiment(
    "negatives-at-lag-128",
    question="Do tapered negatives make old data safe and useful, and which baseline breaks them?",
    source="TOPR, Le Roux et al. (2025), arXiv:2503.14286",
    differs="a transformer of 7,000 weights, sums of 6 digits, 300 steps of 32 responses; rates by arm",
    cells=cells,
    stop=Stop(block=16, cap=32),
    keys=("staleness", "recipe", "recipe_args", "seed"),
    metrics=(
        *("accuracy", "best", "start", "area", "collapsed", "val/entropy", "known actor/positive_share"),
        "mean actor/learning_rate",
    ),
    margins={"accuracy, or share of the mass, that counts as lost": LOST},
    figure=Plot(
        "strips",
        x="accuracy",
        y="recipe_args",
        where={"staleness": "exact"},
        names={str(arm["recipe_args"]): name for name, arm in OLD.items()},
        x_label=f"final accuracy at lag {TOPR_LAG}",
        y_label="negatives and baseline",
    ),
    systems=("TOPR",),
)
declare(EXPERIMENT, claims())
