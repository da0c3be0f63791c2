"""Results drawn: every kind shows the numbers of its cells, and no panel hides what differs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from support.command_line import refused, told
from support.figure_boxes import faults
from support.made_sweep import CELLS, STEPS, TOY, accuracy, made
from support.refusals import refuses

from analysis.tables.tails import HISTOGRAM
from paper_figs import plot
from paper_figs.figure_registry import no_mathtext
from paper_figs.save_figures import render
from testbed.config.run import grid


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory.mktemp("sweep") / "made")


@pytest.fixture(scope="module")
def rows(folder):
    return plot.load(folder)


def lines(ax):
    return {line.get_label(): line for line in ax.get_lines()}


def test_curves_are_medians_over_seeds_in_a_panel_per_lag(rows):
    axes = plot.curves(rows)
    assert [ax.get_title() for ax in axes] == ["lag 0", "lag 8", "lag 64"]
    median_L = np.median([accuracy(cell) for cell in CELLS[:4]], axis=0)
    assert lines(axes[0])["GRPO"].get_ydata() == pytest.approx(median_L)
    assert lines(axes[2])["REINFORCE"].get_ydata()[-1] == 0


def test_outcomes_stand_over_the_dial(rows):
    (ax,) = plot.final(rows)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("lag", "final accuracy")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "8", "64"]
    center = {bar.get_label(): bar[0].get_ydata() for bar in ax.containers}
    assert center["GRPO"] == pytest.approx([0.915] * 3)
    assert center["REINFORCE"] == pytest.approx([0.915, 0.915, 0])


def test_every_dial_can_be_the_axis(rows):
    axes = plot.final(rows, x="recipe", arm="lag")
    assert [text.get_text() for text in axes[0].get_xticklabels()] == ["GRPO", "REINFORCE"]


def test_collapse_is_a_share_of_seeds(rows):
    (ax,) = plot.collapse(rows)
    found = {bar.get_label(): bar[0].get_ydata().tolist() for bar in ax.containers}
    assert found == {"GRPO": [0, 0, 0], "REINFORCE": [0, 0, 1]}


def test_a_heat_map_holds_the_means_and_one_scale(tmp_path):
    cells = grid(TOY, lag=[0, 8, 64], learning_rate=[0.1, 1.0, 2.0], recipe=["grpo", "reinforce"])
    rows = plot.load(made(tmp_path / "s", cells))
    axes = plot.heat(rows)
    assert plot.usual_kind(rows) == "heat"
    assert [ax.get_title() for ax in axes] == ["GRPO", "REINFORCE"]
    assert len({ax.collections[0].get_clim() for ax in axes}) == 1
    assert [text.get_text() for text in axes[1].texts] == ["0.9", "0.9", "0"] * 3


def test_ess_has_its_floor(rows):
    axes = plot.ess(rows)
    assert all(any(set(line.get_ydata()) == {1 / 64} for line in ax.get_lines()) for ax in axes)
    assert lines(axes[1])["GRPO"].get_ydata() == pytest.approx(1 / 9)


def test_tails_are_the_shares_above_each_edge(rows):
    axes = plot.tails(rows, where=["lag=64"])
    y = lines(axes[0])["GRPO"].get_ydata()
    assert sorted(set(np.round(y, 9))) == pytest.approx([1 / 3, 1])


def test_every_seed_has_its_line_and_the_lost_ones_stand_out(rows):
    axes = {ax.get_title(): ax for ax in plot.seeds(rows)}
    assert len(axes) == 6
    assert all(len(ax.get_lines()) == 4 for ax in axes.values())
    assert "collapsed" in lines(axes["REINFORCE, lag 64"])
    assert "collapsed" not in lines(axes["GRPO, lag 64"])


def test_more_arms_than_a_panel_takes_go_into_panels(tmp_path):
    names = ["grpo", "m2po", "gspo", "cispo", "vcpo", "reinforce", "topr"]
    rows = plot.load(made(tmp_path / "s", grid(TOY, recipe=names, seed=range(2))))
    axes = plot.curves(rows)
    assert sorted(ax.get_title() for ax in axes) == sorted(name.upper() for name in names)
    assert all(len(ax.collections) == 1 for ax in axes)


def test_settings_never_pass_for_seeds_of_one(rows):
    (ax,) = plot.curves(rows, arm="recipe", by=(), where=["lag=0,8"])
    assert set(lines(ax)) == {f"{recipe}, lag {lag}" for recipe in ("GRPO", "REINFORCE") for lag in (0, 8)}


def test_an_arm_looks_alike_in_every_panel(tmp_path):
    cells = [*grid(TOY, recipe=["grpo", "m2po"], lag=[0]), *grid(TOY, recipe=["m2po"], lag=[8])]
    axes = plot.curves(plot.load(made(tmp_path / "s", cells)))
    first, second = (lines(ax)["M2PO"].get_color() for ax in axes)
    assert first == second
    assert len(lines(axes[1])["GRPO"].get_xdata()) == 0


def test_cells_without_a_number_are_counted_on_the_figure(tmp_path):
    def some(run):
        return accuracy(run) if run.seed else np.full(len(STEPS), np.nan)

    rows = plot.load(made(tmp_path / "s", CELLS, some))
    rows["reward/mean"] = rows["reward/mean"].where(rows["seed"] > 0)
    axes = plot.final(rows, "reward/mean")
    assert axes[0].figure._supxlabel.get_text().startswith("6 of 24 cells have no number")


@pytest.mark.parametrize(
    "call",
    [lambda rows: plot.curves(rows.drop(columns="accuracy"), "acuracy"),
     lambda rows: plot.final(rows, x="lagg"), lambda rows: plot.heat(rows[rows["lag"] == 0]),
     lambda rows: plot.final(rows[(rows["lag"] == 0) & (rows["recipe"] == "grpo")]),
     lambda rows: plot.tails(rows.drop(columns=HISTOGRAM)),
     lambda rows: plot.collapse(rows.drop(columns="accuracy")),
     lambda rows: plot.curves(rows, by=("recipe", "lag", "seed"), arm=(), ax=object())],
)  # fmt: skip
def test_what_cannot_be_drawn_is_one_message(rows, call):
    refuses(".", call, rows)


@pytest.mark.slow
def test_the_command_draws_what_varies_in_every_format(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words, file, start in (
        ([], "out/made-final.png", b"\x89PNG"),
        (["--kind", "curves", "--by", "lag", "--arm", "recipe", "--out", "a.pdf"], "a.pdf", b"%PDF"),
        (["--x", "lag", "--y", "recipe"], "out/made-heat.png", b"\x89PNG"),
        (["--kind", "seeds", "--where", "lag=0", "--out", "a.svg"], "a.svg", b"<?xml"),
    ):
        assert told(capsys, "plot", folder, *words).strip() == file
        assert (tmp_path / file).read_bytes().startswith(start)
    first = (tmp_path / "a.svg").read_bytes()
    told(capsys, "plot", folder, "--kind", "seeds", "--where", "lag=0", "--out", "a.svg")
    assert (tmp_path / "a.svg").read_bytes() == first


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--kind", "heet"], "Did you mean 'heat'"), (["--out", "a.gif"], "ends in .png, .pdf or .svg"),
     (["--kind", "curves", "--y", "lag"], "takes no --y")],
)  # fmt: skip
def test_a_mistake_on_the_command_line_is_one_message(folder, words, message, capsys):
    assert message in refused(capsys, "plot", str(folder), *words)


def test_dollars_and_backslashes_of_a_users_texts_are_drawn_as_they_are(tmp_path):
    """A system prompt asks for \\boxed; as mathtext it would not parse, and a formula would be drawn."""
    prompts = [r"Answer in $\boxed{}$ and $x^2$.", r"$\frac{1}{2$ and \$5", r"_$ $"]
    long = ["a" * 3000 + end for end in "bc"]
    rows = plot.load(
        made(tmp_path / "s", grid(TOY, task_args=[(("system", p),) for p in (*prompts, *long)], lag=[0, 8]))
    )
    for kind, options in (
        ("curves", {}), ("final", {"x": "task_args.system"}), ("heat", {}), ("final", {}), ("seeds", {}),
    ):  # fmt: skip
        with plot.style():
            axes = plot.KINDS[kind](rows, **options)
            figure = axes[0].figure
            assert faults(figure) == [], kind
            svg = render(figure, "svg").decode()
        texts = "".join(re.findall("<!-- (.*?) -->", svg))  # where glyphs are paths, a text is a comment
        for prompt in (*prompts, "aaab (1)", "aaac (2)"):
            assert prompt.replace(" ", "") in texts.replace(" ", ""), (kind, prompt)


def test_recipes_have_their_papers_names_unless_two_would_have_one(tmp_path):
    """PPO is both the recipe ppo and ppo_clip: a figure keeps their own names, and two lines."""
    cells = grid(TOY, recipe=["grpo", "ppo_clip"], lag=[0])
    (ax,) = plot.curves(plot.load(made(tmp_path / "one", cells)))
    assert set(lines(ax)) == {"GRPO", "PPO"}
    rows = plot.load(tmp_path / "one").replace({"recipe": {"grpo": "ppo"}})
    assert set(lines(plot.curves(rows)[0])) == {"ppo", "ppo_clip"}


@pytest.mark.parametrize(
    ("options", "why"),
    [({"arm": "recipe", "by": "recipe"}, "recipe has a color and a panel"),
     ({"arm": ("lag", "recipe"), "by": ("lag",)}, "lag has a color and a panel")],
)  # fmt: skip
def test_a_setting_in_two_places_is_one_message(rows, options, why):
    refuses(why, plot.curves, rows, **options)
    refuses("Both axes of the heat map are lag", plot.heat, rows, x="lag", y="lag")


def test_a_setting_named_twice_counts_once(rows):
    once, twice = (plot.curves(rows, arm=arm) for arm in ("recipe", ("recipe", "recipe")))
    assert [ax.get_title() for ax in once] == [ax.get_title() for ax in twice]


def test_a_reduction_is_not_drawn_as_the_metric_it_reduces(rows):
    for word in ("min accuracy", "mean_accuracy", "best"):
        refuses("is one number per cell", plot.curves, rows, word)


def test_a_caption_names_the_value_of_a_cell(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words, text in (
        ([], "The mean of the last 3 logged rows of accuracy against a setting"),
        (["--metric", "min_accuracy"], "Min accuracy against a setting"),
        (["--kind", "heat", "--metric", "best"], "Best over two settings"),
    ):
        assert json.loads(told(capsys, "plot", folder, *words, "--json"))["caption"].startswith(text)


def test_a_caption_names_the_metric_that_is_drawn(rows):
    axes = plot.curves(rows)
    assert plot.caption("curves", axes).startswith("The metric accuracy against the step: median over seeds")


def test_numbers_of_an_axis_keep_their_notation():
    with plot.style():
        fig = Figure()
        ax = fig.subplots()
        ax.semilogy([1, 1000])
        ax.set_title("$a$")
        no_mathtext(fig)
        svg = render(fig, "svg").decode()
    assert r"\mathdefault{10^{2}}" in svg  # the comment above glyphs of a formula that was parsed
    assert ax.title.get_parse_math() is False
    assert ax.yaxis.get_major_ticks()[0].label1.get_parse_math() is True


def test_every_figure_is_saved_in_one_place():
    root = Path(plot.__file__).parents[1]
    files = [f for folder in ("paper_figs", "testbed", "analysis") for f in (root / folder).rglob("*.py")]
    assert [file.name for file in files if ".savefig(" in file.read_text()] == ["save_figures.py"]
