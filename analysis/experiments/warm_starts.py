"""Supervised warm starts of the toy LLM: what more of it does to later RL and DPO, also on old data."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.claims import Evidence
from analysis.comparisons import arm, paired
from analysis.experiment import Experiment, Part, Stop
from analysis.plot import Plot
from analysis.sequential import median_exceeds
from analysis.starting_runs import TOY
from testbed.config.run import Run, grid

SFT = "SFT then RL for vulnerability detection (2026)"
CHART = "ChartSketcher (2025)"
WARM = (100, 600, 2000)
"""Supervised steps."""
OLD = 200
CEILING, LOST, ABOVE = 0.02, 0.1, 0.05
"""Accuracies. Set before the sweep was run."""


def cells() -> tuple[Run, ...]:
    """GRPO and DPO on-policy behind three lengths of warm start; DPO also on data of age 50 and 200."""
    warm = grid(TOY, warm_start_steps=WARM, recipe=["grpo", "dpo"], seed=[0])
    return (*warm, *grid(replace(TOY, recipe="dpo"), lag=[50, OLD], seed=[0]))


EXPERIMENT = Experiment(
    "warm-starts",
    question="Does more supervised training before RL raise or lower what RL and DPO end with?",
    source=SFT,
    differs="a noisy teacher of running sums, fresh prompts; one reward; pairs of a group for DPO",
    cells=cells,
    stop=Stop(cap=16),
    keys=("warm_start_steps", "recipe", "lag", "seed"),
    metrics=("accuracy", "best", "start", "first actor/entropy", "actor/entropy", "last val/pass@4"),
    margins={
        "accuracy lost to more supervision": CEILING,
        "accuracy lost to age": LOST,
        "accuracy gained over supervision": ABOVE,
    },
    figure=Plot(
        "final by dial",
        x="warm_start_steps",
        y="accuracy",
        arm=("recipe",),
        where={"lag": 0},
        x_label="supervised steps before RL",
        y_label="final accuracy",
    ),
    systems={
        "SFT→RL for vulnerability detection": Part(
            "GRPO and DPO behind 100, 600 and 2000 supervised steps; neither ORPO nor graded rewards",
            ("long-warm-starts-lower-rl", "dpo-rises-with-warm-starts", "grpo-beats-dpo-behind-warm-starts"),
        ),
        "ChartSketcher": Part(
            "preference learning behind a cold start on data of age 0 and 200; no charts",
            ("age-lowers-dpo", "old-preferences-still-beat-supervision"),
        ),
    },
)


@EXPERIMENT.claim(
    "long-warm-starts-lower-rl",
    statement=(
        "GRPO behind 2000 supervised steps ends at least 0.02 less accurate than behind 600, in the median "
        "over seeds: an excess of supervision costs what RL can reach."
    ),
)
def lower(table: pd.DataFrame) -> Evidence:
    """Return the evidence about final accuracies, paired by seed."""
    more, less = ({"recipe": "grpo", "lag": 0, "warm_start_steps": steps} for steps in (2000, 600))
    return median_exceeds(paired(table, "accuracy", less, more), CEILING, "median accuracy lost, less 0.02")


@EXPERIMENT.claim(
    "dpo-rises-with-warm-starts",
    statement="DPO behind 2000 supervised steps ends more accurate than behind 100, on most seeds.",
)
def rises(table: pd.DataFrame) -> Evidence:
    """Return the evidence about final accuracies, paired by seed."""
    more, less = ({"recipe": "dpo", "lag": 0, "warm_start_steps": steps} for steps in (2000, 100))
    return median_exceeds(paired(table, "accuracy", more, less), 0.0, "median accuracy gained by supervision")


@EXPERIMENT.claim(
    "grpo-beats-dpo-behind-warm-starts",
    statement="Behind 100, 600 and 2000 supervised steps GRPO ends more accurate than DPO, on most seeds.",
)
def grpo_beats_dpo(table: pd.DataFrame) -> Evidence:
    """Return the evidence about final accuracies, paired by seed, at each length of warm start."""
    gain = {
        f"{steps} steps": paired(
            table,
            "accuracy",
            {"recipe": "grpo", "lag": 0, "warm_start_steps": steps},
            {"recipe": "dpo", "lag": 0, "warm_start_steps": steps},
        )
        for steps in WARM
    }
    return median_exceeds(gain, 0.0, "median accuracy of GRPO less that of DPO")


@EXPERIMENT.claim(
    "age-lowers-dpo",
    source=CHART,
    statement="DPO ends at least 0.1 less accurate on data of age 200 than on fresh ones, in the median.",
)
def age(table: pd.DataFrame) -> Evidence:
    """Return the evidence about final accuracies, paired by seed."""
    fresh, old = ({"recipe": "dpo", "warm_start_steps": 600, "lag": lag} for lag in (0, OLD))
    return median_exceeds(
        paired(table, "accuracy", fresh, old), LOST, "median accuracy lost to age, less 0.1"
    )


@EXPERIMENT.claim(
    "old-preferences-still-beat-supervision",
    source=CHART,
    statement=(
        "On data of age 200 DPO still ends 0.05 more accurate than the warm start alone, in the median."
    ),
)
def above(table: pd.DataFrame) -> Evidence:
    """Return the evidence about accuracy at the end less that at the start, of each seed."""
    old = {"recipe": "dpo", "warm_start_steps": 600, "lag": OLD}
    gain_N = arm(table, "accuracy", old) - arm(table, "start", old)
    return median_exceeds(gain_N.to_numpy(), ABOVE, "median accuracy gained since the warm start, less 0.05")
