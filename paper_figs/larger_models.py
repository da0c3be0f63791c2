"""Final accuracy that the tuned toy LLM foretells, and that models of a million weights have."""

import pandas as pd
from matplotlib.figure import Figure

from paper_figs.base import figure
from paper_figs.toy_vs_real import TITLES, beside_the_toy

CAPTION = (
    "Final accuracy of Hugging Face models of a million weights on data that are 32 (open) and 64 (filled) "
    "optimizer steps old, against the toy LLM's on the same task, every recipe at its own learning rate: "
    "medians over seeds, the toy's over 6 tuning seeds. Star: GRPO on fresh data; line: equality. 64 steps "
    "of 32 responses, so that at lag 64 all data come from the first weights."
)


@figure(
    "larger-models",
    data="larger-models",
    caption=CAPTION,
    supports=("toy-ranks-larger-models-at-tau-0.8", "toy-ranks-larger-models-at-lag-64"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns as in toy_vs_real."""
    return beside_the_toy(table, TITLES, {32: 0.0, 64: 1.0})
