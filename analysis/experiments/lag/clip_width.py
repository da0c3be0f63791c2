"""REC by the width of its clip, and RED, at two lags."""

from collections.abc import Iterator
from functools import partial

from analysis.experiments.lag.class_rates import CLIP_LAGS, CLIPS, KEYS, NAME, clip_cells
from analysis.lab import Check, Experiment, Plot, Stop, above, declare, named, steady
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

MARGIN = 0.05
"""Accuracy below a rival that counts as no worse than it. Set before the sweep was run."""
NARROW, WIDE, OPEN, *_ = CLIPS


def cells() -> tuple[Run, ...]:
    """REC at three widths, RED and GRPO at two lags, each at its own learning rate."""
    return tuned(clip_cells(), NAME, KEYS)


def claims() -> Iterator[tuple[str, str, Check]]:
    """Yield what the source says of the width and of RED, at each lag."""
    for lag in CLIP_LAGS:
        where = named(CLIPS, lag=lag)
        wide, narrow, opened = ({name: where[name]} for name in (WIDE, NARROW, OPEN))
        yield (
            f"a-wide-rec-clip-learns-faster-at-lag-{lag}",
            f"At lag {lag}, REC with bounds of 0.6 below and 2 above has a higher mean accuracy along the "
            "run than with 0.2, on most seeds.",
            partial(above, pair=wide | narrow, outcome="area"),
        )
        for title, name, pair in (("a-wide-rec-clip", WIDE, wide), ("no-rec-clip-below", OPEN, opened)):
            yield (
                f"{title}-ends-no-lower-at-lag-{lag}",
                f"At lag {lag}, {name} ends at most 0.05 below REC with 0.2, on most seeds.",
                partial(above, pair=pair | narrow, margin=-MARGIN),
            )
        yield (
            f"a-wide-rec-clip-does-not-collapse-at-lag-{lag}",
            f"At lag {lag}, REC with bounds of 0.6 and 2 collapses on less than half of all seeds.",
            partial(steady, where=where[WIDE]),
        )
        for name in ("RED-drop", "RED-weight"):
            yield (
                f"{name.lower()}-ends-above-grpo-at-lag-{lag}",
                f"At lag {lag}, {name} ends with a higher accuracy than GRPO, on most seeds.",
                partial(above, pair={name: where[name], "GRPO": where["GRPO"]}),
            )


EXPERIMENT = Experiment(
    "clip-width",
    question="Is a clip range far wider than 0.2 as stable on old data, and faster?",
    source="Yao et al. (2025), arXiv:2509.24203",
    differs="a transformer of 7,000 weights, sums of 6 digits, 300 steps of 32 responses; rates by arm",
    cells=cells,
    stop=Stop(block=16, cap=32),
    keys=("recipe", "recipe_args", "lag", "seed"),
    metrics=(
        "accuracy",
        "best",
        "start",
        "area",
        "collapsed",
        "mean actor/clip_share",
        "mean actor/learning_rate",
    ),
    margins={"accuracy below a rival that counts as no worse": MARGIN},
    figure=Plot(
        "distribution",
        x="lag",
        y="area",
        arm=("recipe", "recipe_args: clip range"),
        names={"eps_high=2,eps_low=0.6": "0.6, 2", "eps_high=2,eps_low=2": "2, 2", "how=drop": "drop"},
        x_label="lag (optimizer steps)",
        y_label="mean accuracy along the run",
    ),
    systems=("REC (Group-relative REINFORCE is off-policy)",),
)
declare(EXPERIMENT, claims())
