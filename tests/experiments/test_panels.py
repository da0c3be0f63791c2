"""What keeps panels readable, and that every figure is: nothing cut off, no text over another."""

import functools

import pytest
from matplotlib.backends import backend_agg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.mathtext import MathTextParser
from support.figure_boxes import faults
from support.refusals import refuses

from analysis.tables.committed import load_committed
from paper_figs import figure_registry, panels, save_figures

TABLES = load_committed()


@pytest.fixture(scope="module", autouse=True)
def one_parser():
    """Parse the labels of axes once for all figures: matplotlib does it anew for each."""
    parse = functools.cache(MathTextParser._parse_cached.__wrapped__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend_agg, "MathTextParser", functools.cache(MathTextParser))
        patch.setattr(MathTextParser, "_parse_cached", parse)
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [n for n in sorted(figure_registry.FIGURES) if figure_registry.FIGURES[n].promises["data"] in TABLES],
)
def test_no_text_of_a_figure_is_cut_off_small_struck_through_or_over_another(name):
    table = figure_registry.FIGURES[name].promises["data"]
    with save_figures.style():
        assert faults(figure_registry.draw(name, TABLES[table].frame)) == []


@pytest.mark.slow
def test_compared_objectives_are_panels_without_such_faults():
    from analysis.experiments.cards.objective_weights import frame_of
    from paper_figs.objective_comparison import draw
    from testbed.cli.objective_table import main_axis
    from testbed.inspection import atlas
    from testbed.objectives import objective

    names = ["ppo_clip", *(n for n in objective if n.startswith("cispo"))]
    kept = [c for n in names for c in atlas.curves(n) if c.axis == main_axis(objective[n])]
    with save_figures.style():
        fig = draw(frame_of(kept))
        assert faults(fig) == []
    shown = [ax for ax in fig.axes if ax.axison]
    colored = [sum(line.get_linewidth() == 1.4 for line in ax.lines) for ax in shown]
    assert colored == [2] * len(shown)


@pytest.mark.parametrize(
    ("draw", "words"),
    [(lambda ax: ax.text(0.5, 0.5, "one") and ax.text(0.51, 0.5, "two"), "'one' and 'two' overlap"),
     (lambda ax: ax.text(0.99, 0.5, "a long text", clip_on=False), "'a long text' is cut off"),
     (lambda ax: ax.text(0.1, 0.5, "tiny", fontsize=5), "'tiny' has 5.0 points"),
     (lambda ax: ax.plot([0, 0.5, 1], [0.5] * 3) and ax.text(0.5, 0.5, "word", va="center"), "runs through")],
)  # fmt: skip
def test_the_check_sees_what_it_is_for(draw, words):
    with save_figures.style():
        fig = Figure(figsize=(2, 2), layout="none")
        ax = fig.subplots()
        ax.set(xlim=(0, 1), ylim=(0, 1))
        draw(ax)
        assert any(words in fault for fault in faults(fig))


def test_a_legend_says_nothing_twice():
    one, same = Line2D([], [], color="k", label="a"), Line2D([], [], color="k", label="b")
    refuses("twice", panels.legend, Figure(), [one, same], error=ValueError)
    with pytest.raises(ValueError, match="'a' twice"):
        panels.legend(Figure(), [one, Line2D([], [], color="r", label="a")])
