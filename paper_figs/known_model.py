"""SmolLM2-135M-Instruct on fresh data and on data 16 steps old: a dot per seed."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import BLUE, ORANGE
from paper_figs.base import PAGE, figure
from paper_figs.strips import Row, strips

CAPTION = (
    "SmolLM2-135M-Instruct learns which of two numbers is larger: GRPO at rate 3e-4 with LoRA adapters of "
    "rank 16 in bfloat16, 31 steps of 4 x 8 responses, on fresh data and on data 16 optimizer steps old. "
    "Dots: seeds; mark and bar: median with its order-statistic 95 % interval. ESS (effective sample size): "
    "Kish, of sequence ratios, as a share of the batch. Means are along the run."
)
PANELS = {
    "mean accuracy": "mean held-out accuracy",
    "accuracy": "final held-out accuracy",
    "mean rollout_corr/ess_kish_sequence_raw": "mean sequence ESS",
}


@figure("known-model", data="known-model", caption=CAPTION, supports=("old-data-slow-smollm2-down",))
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns lag, seed and those of PANELS."""
    fig = Figure(figsize=(PAGE, 1.5))
    axes = fig.subplots(1, len(PANELS), sharey=True)
    for ax, (column, label) in zip(axes, PANELS.items(), strict=True):
        rows = {}
        for lag in sorted(set(table["lag"])):
            part = table[table["lag"] == lag]
            name = f"lag {lag}, {len(part)} seeds" if lag else f"fresh, {len(part)} seeds"
            rows[name] = Row(part[column], ORANGE if lag else BLUE)
        strips(ax, rows, label)
    return fig
