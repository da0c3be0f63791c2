"""Share of its best accuracy that a recipe keeps at one high rate: foretold by the toy LLM, and found."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.tables.outcomes import ACCURACY
from paper_figs.base import figure
from paper_figs.toy_vs_real import TITLES, TOY, beside_the_toy

CAPTION = (
    "Share of its best accuracy that a recipe ends with on data that are 64 optimizer steps old, at one "
    "learning rate several times the best one: Hugging Face models of a million weights against the toy LLM "
    "on the same task, medians over seeds, the toy's over 6 tuning seeds. Line: equality. 64 steps of 32 "
    "responses, so that all data come from the first weights."
)


@figure(
    "larger-collapses",
    data="larger-collapses",
    caption=CAPTION,
    supports=("toy-ranks-what-larger-models-keep-at-tau-0.5", "toy-ranks-what-larger-models-keep-at-tau-0"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns task, recipe, lag, seed, kept, toy kept."""
    return beside_the_toy(table.assign(**{ACCURACY: table["kept"], TOY: table["toy kept"]}), TITLES, {})
