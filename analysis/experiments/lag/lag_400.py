"""OAPL and truncated sequence weights on data that are 1 to 400 optimizer steps old."""

from collections.abc import Iterator
from functools import partial

from analysis.experiments.lag.class_rates import KEYS, NAME, SYNC, SYNC_LAGS, sync_cells
from analysis.lab import Check, Experiment, Part, Plot, Stop, above, declare, named, sooner
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

MARGIN, TIMES = 0.05, 3
"""Accuracy below that at lag 1 that counts as none; times fewer rollouts. Set before the sweep was run."""
MARGINS = {"accuracy below that at lag 1 that counts as none": MARGIN, "times fewer rollouts": TIMES}
RIVAL = "GRPO with truncated sequence weights"
FIGURE = Plot(
    "final by setting",
    x="lag",
    y="accuracy",
    arm=("recipe",),
    names={"vcpo": "sequence weights, capped at 8", "oapl": "OAPL"},
    x_label="lag (optimizer steps)",
    y_label="final accuracy",
    log="x",
)


def cells() -> tuple[Run, ...]:
    """OAPL at four lags and GRPO with truncated sequence weights at three, each at its own rate."""
    return tuned(sync_cells(), NAME, KEYS)


def claims() -> Iterator[tuple[str, str, Check]]:
    """Yield whether OAPL holds with age, and what it gains on its rival at equal age."""
    oapl = {lag: named(SYNC, lag=lag)["OAPL"] for lag in SYNC_LAGS["OAPL"]}
    for lag in SYNC_LAGS["OAPL"][1:]:
        yield (
            f"oapl-holds-its-accuracy-at-lag-{lag}",
            f"At lag {lag}, OAPL ends at most 0.05 below its accuracy at lag 1, on most seeds.",
            partial(above, pair={f"lag {lag}": oapl[lag], "lag 1": oapl[1]}, margin=-MARGIN),
        )
    for lag in SYNC_LAGS["sequence IS"]:
        pair = named(SYNC, lag=lag)
        yield (
            f"oapl-ends-above-sequence-weights-at-lag-{lag}",
            f"At lag {lag}, OAPL ends with a higher accuracy than {RIVAL}, on most seeds.",
            partial(above, pair=pair),
        )
        yield (
            f"oapl-needs-a-third-of-the-rollouts-of-sequence-weights-at-lag-{lag}",
            f"At lag {lag}, OAPL has accuracy 0.8 in under a third of the rollouts of {RIVAL}, on most "
            "seeds.",
            partial(sooner, pair=pair, times=TIMES),
        )


EXPERIMENT = Experiment(
    "lag-400",
    question="Does OAPL hold its accuracy on data that are 400 optimizer steps old, and save generations?",
    source="Ritter et al. (2026), arXiv:2602.19362",
    differs="a transformer of 7,000 weights, sums of 6 digits, 800 steps of 32 responses, of which the first "
    "400 see data of the base model at lag 400; a lag that is the same for all samples; rates by arm",
    cells=cells,
    stop=Stop(block=12, cap=36, begun_with=24),
    keys=("recipe", "recipe_args", "lag", "seed"),
    metrics=(
        *("accuracy", "best", "area", "collapsed", "rollouts_to 0.5", "rollouts_to 0.8", "last val/pass@8"),
        "mean actor/learning_rate",
    ),
    margins=MARGINS,
    figure=FIGURE,
    systems={"OAPL": Part("lags 1 to 400, equal for all samples, in small batches; no periodic sync")},
)
declare(EXPERIMENT, claims())
