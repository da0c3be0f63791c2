"""Families of sources, one column each: teachers and proxies."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.rewards import proxy_training
from analysis.experiments.teachers import teacher_training
from analysis.judging.comparisons import Arm, arm
from analysis.palette import BLUE, GREEN, VERMILION
from analysis.tables.outcomes import need
from paper_figs.base import COLUMN, figure
from paper_figs.strips import Row, strips

MARKS = "Dots: seeds; mark and bar: median and its order-statistic 95% interval."
TEACHER_NAMES = {
    "grpo": "GRPO", "opsd": "own tokens", "off-policy": "teacher's tokens", "long grpo": "GRPO",
    "long dgrpo": "dGRPO", "long opd": "distillation", "long sft": "SFT",
}  # fmt: skip
PROXY_NAMES = {
    "loophole": "loophole", "single": "one model", "worst": "worst of five", "uncertainty": "mean - var/2",
    "root": "good model, GRPO", "p3o": "same, P3O", "ppo": "same, PPO", "dpo": "same, DPO",
    "reset": "same, resets",
}  # fmt: skip


def _rows(
    table: pd.DataFrame, value: str, where: Mapping[str, Arm], names: Mapping[str, str], color: str
) -> dict[str, Row]:
    """Return a row per arm that has seeds."""
    found = {name: arm(table, value, where[key]).dropna() for key, name in names.items()}
    return {name: Row(x_N, color) for name, x_N in found.items() if len(x_N)}


def _panels(panels: Mapping[str, dict[str, Row]]) -> Figure:
    """Return panels below one another, rows of equal height; x label: rows."""
    heights = [len(rows) + 1.6 for rows in panels.values()]
    fig = Figure(figsize=(COLUMN, 0.25 + 0.21 * sum(heights)))
    axes = fig.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
    for ax, (label, rows) in zip(axes, panels.items(), strict=True):
        strips(ax, rows, label)
    return fig


@figure(
    "teacher-training",
    data="teacher-training",
    caption=(
        "Final accuracy of the toy LLM with a teacher. Above: sums with room for the solution, which the "
        "teacher, the student itself or its start, sees. Below: chains of 24 steps with a better trained "
        f"model. {MARKS}"
    ),
    supports=(
        "self-distillation-needs-a-quarter-of-the-tokens",
        "a-teachers-term-ends-above-grpo-on-long-chains",
    ),
)
def teachers(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns as in the table teacher-training."""
    need(table, ["task", "recipe", "teacher_args", "accuracy"])
    split = {"accuracy, hinted sums": False, "accuracy, 24 steps": True}
    return _panels(
        {
            label: _rows(
                table,
                "accuracy",
                teacher_training.WHERE,
                {key: name for key, name in TEACHER_NAMES.items() if key.startswith("long") == long},
                GREEN if long else BLUE,
            )
            for label, long in split.items()
        }
    )


@figure(
    "proxy-training",
    data="proxy-training",
    caption=(
        "The toy LLM trained on proxies for 120 steps: gold accuracy at its best (above) and at the end "
        "(below). Loophole: a verifier that also passes what begins with a zero. Models: linear in right "
        "places and counts of tokens, of 256 comparisons and blind to two of six places, or of 512 and "
        f"blind to none; a quarter of all labels is wrong. {MARKS}"
    ),
    supports=("one-reward-model-loses-gold-in-training", "ensembles-end-above-one-reward-model"),
)
def proxies(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns as in the table proxy-training."""
    need(table, ["recipe", "prefix", "verifier", "verifier_args.combine", "accuracy", "best"])
    return _panels(
        {
            "gold accuracy, best": _rows(table, "best", proxy_training.WHERE, PROXY_NAMES, GREEN),
            "gold accuracy, end": _rows(table, "accuracy", proxy_training.WHERE, PROXY_NAMES, VERMILION),
        }
    )
