"""Shared kinds of plots: every kind draws the numbers that it says, from rows in any order."""

import numpy as np
import pandas as pd
import pytest
from support.refusals import refuses

from analysis.declared_plot import KINDS, Plot
from analysis.experiment import EXPERIMENTS
from analysis.judging.seed_intervals import median_interval, student_interval
from paper_figs import figure_registry, plot_kinds, save_figures, shared_plots

PLOTS = [name for name, each in EXPERIMENTS.items() if isinstance(each.figure, Plot)]


def rows():
    found = [{"arm": arm, "x": x, "seed": seed, "y": scale * x + seed, "cost": x, "event": float(seed > x)}
             for arm, scale in (("a", 1.0), ("b", 2.0)) for x in (0, 1, 4) for seed in range(3)]  # fmt: skip
    return pd.DataFrame(found).sample(frac=1, random_state=0)


def drawn(table, kind, **fields):
    with save_figures.style():
        fig = shared_plots.draw(table, plot=Plot(kind, **{"x": "x", "y": "y", **fields}))
        fig.draw_without_rendering()
    return fig, fig.axes[0]


def test_every_kind_is_drawn_and_no_other():
    assert set(plot_kinds.DRAW) == set(KINDS)
    refuses("Did you mean 'heat map'", Plot, "heatmap", x="x", y="y")
    refuses("heat maps have one", Plot, "heat map", x="x", y="y")


def test_curves_join_medians():
    _, ax = drawn(rows(), "curves by arm", arm=("arm",))
    assert [line.get_ydata().tolist() for line in ax.get_lines()] == [[1, 2, 5], [1, 3, 9]]
    assert [line.get_label() for line in ax.get_lines()] == ["a", "b"]


def test_a_setting_shows_means_side_by_side_with_their_intervals():
    _, ax = drawn(rows(), "final by setting", arm=("arm",), names={"a": "first"})
    (line, _, (bars,)), _ = ax.containers
    assert line.get_ydata().tolist() == [1, 2, 5]
    # t(2) at 97.5% is 4.3027; the seeds 0, 1, 2 have standard error 1 / sqrt(3).
    low, high = bars.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((1 - 4.3027 / 3**0.5, 1 + 4.3027 / 3**0.5), abs=1e-3)
    assert ax.get_legend_handles_labels()[1] == ["first", "b"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "1", "4"]


def test_a_heat_map_writes_the_mean_of_every_field():
    _, ax = drawn(rows(), "heat map", y="arm", value="y")
    assert [text.get_text() for text in ax.texts] == ["1", "2", "5", "1", "3", "9"]


def test_a_distribution_shows_every_row_and_the_quartiles():
    _, ax = drawn(rows(), "distribution", x="arm")
    dots = [line for line in ax.get_lines() if line.get_marker() == "."]
    assert sorted(np.concatenate([dot.get_ydata() for dot in dots])) == sorted(rows()["y"])
    spans = [line.get_ydata() for line in ax.get_lines() if len(line.get_xdata()) == 2]
    y = rows().loc[rows()["arm"] == "a", "y"]
    assert spans[0] == pytest.approx(np.quantile(y, (0.25, 0.75)))


def test_strips_are_a_row_of_dots_per_arm_with_its_mean_or_median():
    _, ax = drawn(rows(), "strips", x="y", y="arm", names={"a": "first"})
    dots = [line for line in ax.get_lines() if line.get_marker() == "."]
    assert [sorted(dot.get_xdata()) for dot in dots] == [sorted(p["y"]) for _, p in rows().groupby("arm")]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["first", "b"]
    for center, interval in (("median", median_interval), ("mean", student_interval)):
        _, ax = drawn(rows(), "strips", x="y", y="arm", center=center)
        expected = [interval(part["y"]) for _, part in rows().groupby("arm")]
        bars = [mark.lines[2][0].get_segments()[0][:, 0] for mark in ax.containers]
        assert np.array(bars) == pytest.approx(np.array([(each.low, each.high) for each in expected])), center
        assert [mark.lines[0].get_xdata()[0] for mark in ax.containers] == [each.center for each in expected]
    # Panels hold other arms: each names its rows.
    apart = rows().assign(task=rows()["arm"].map({"a": "one", "b": "two"}))
    fig, _ = drawn(apart, "strips", x="y", y="arm", panel="task")
    assert [[text.get_text() for text in each.get_yticklabels()] for each in fig.axes] == [["a"], ["b"]]


def test_strips_show_what_the_claims_of_their_experiment_compare():
    named = ("slow-fast", "known-model", "parallel-td3")
    said = {name: figure_registry.FIGURES[name].promises["caption"] for name in named}
    assert "marks and bars: their mean" in said["slow-fast"].lower()
    assert "marks and bars: their median" in said["known-model"].lower()
    assert "marks and bars: their geometric mean" in said["parallel-td3"].lower()


def test_the_geometric_mean_of_strips_is_the_mean_of_the_logarithm():
    table = pd.DataFrame({"calls": [1.0, 10.0, 100.0], "arm": ["a"] * 3})
    _, ax = drawn(table, "strips", x="calls", y="arm", center="geometric mean")
    (bar,) = ax.containers[0].lines[2][0].get_segments()
    half = 4.30265 * np.log(10) / np.sqrt(3)
    assert bar[:, 0] == pytest.approx([10 * np.exp(-half), 10 * np.exp(half)], rel=1e-4)


def test_an_interval_of_accuracies_stays_between_0_and_1_and_one_of_gains_need_not():
    table = pd.DataFrame({"x": [0, 0, 0], "accuracy": [0.7, 1.0, 1.0], "gain": [0.0, 0.9, 0.0]})
    for column, ends in (("accuracy", [0.470, 1.0]), ("gain", [-0.991, 1.591])):
        ax = shared_plots.draw(table, plot=Plot("final by setting", x="x", y=column)).axes[0]
        (bar,) = ax.containers[0].lines[2][0].get_segments()
        assert bar[:, 1] == pytest.approx(ends, abs=1e-3), column
        assert (ax.get_ylim()[1] <= 1.03) == (column == "accuracy")
    table["accuracy"] = [0.0, 1.0, 1.0]
    for kind, axes in (("distribution", ("x", "accuracy")), ("strips", ("accuracy", "x"))):
        ax = shared_plots.draw(table, plot=Plot(kind, *axes)).axes[0]
        assert (ax.get_xlim() if kind == "strips" else ax.get_ylim()) == (-0.03, 1.03), kind


def test_a_roc_counts_alarms_at_every_score():
    false, true = plot_kinds.roc_points(np.array([3.0, 1.0, 2.0, 2.0]), np.array([True, False, True, False]))
    assert true.tolist() == [0, 0.5, 1, 1]
    assert false.tolist() == [0, 0, 0.5, 1]
    _, ax = drawn(rows(), "ROC", x="y", y="event")
    assert "(area 0." in ax.get_lines()[0].get_label()


def test_a_frontier_joins_what_nothing_beats():
    cost, gain = np.array([3.0, 1.0, 2.0, 2.0]), np.array([5.0, 2.0, 1.0, 4.0])
    assert plot_kinds.unbeaten(cost, gain) == [1, 3, 0]
    _, ax = drawn(rows(), "frontier", x="cost", arm=("arm", "x"))
    assert ax.get_lines()[-1].get_ydata().tolist() == [1, 3, 9]


def test_only_the_rows_asked_for_are_drawn():
    _, ax = drawn(rows(), "curves by arm", where={"arm": "b"})
    assert ax.get_lines()[0].get_ydata().tolist() == [1, 3, 9]


def test_the_captions_of_experiments_ask_their_question_and_say_what_the_marks_are():
    for name in PLOTS:
        caption = figure_registry.FIGURES[name].promises["caption"]
        assert caption.startswith(EXPERIMENTS[name].question)
        plot = EXPERIMENTS[name].figure
        assert KINDS[plot.kind].partition("{")[0] in caption.lower().replace("roc", "ROC")
        assert plot.says or EXPERIMENTS[name].differs in caption
        assert "other keys" not in caption


def test_values_of_a_column_have_a_panel_each_with_one_look_per_arm_and_further_plots_stand_below():
    table = rows().query("arm == 'b' or x > 0").assign(half=lambda t: t["y"] / 2)
    fig, _ = drawn(table, "curves by arm", arm=("arm",), panel="x: at", x="seed", also=({"y": "half: ½"},))
    titles = [ax.get_title() for ax in fig.axes]
    assert titles == ["at 0", "at 1", "at 4"] * 2
    lines = [[(line.get_label(), line.get_color()) for line in ax.get_lines()] for ax in fig.axes]
    assert all(each == lines[0] for each in lines)
    assert [ax.get_lines()[1].get_ydata().tolist() for ax in fig.axes[1::3]] == [[2, 3, 4], [1, 1.5, 2]]
    assert [fig.axes[0].get_ylabel(), fig.axes[3].get_ylabel()] == ["y", "½"]


def test_rows_can_be_derived_from_the_table_and_are_marks_of_a_scatter():
    mean = {"of": lambda table: table.groupby(["arm", "x"], as_index=False)["y"].mean()}
    _, ax = drawn(rows(), "scatter", arm=("arm",), **mean)
    assert [line.get_ydata().tolist() for line in ax.get_lines()] == [[1, 2, 5], [1, 3, 9]]


def test_a_logarithmic_axis_is_linear_around_values_of_zero_or_less():
    _, ax = drawn(rows().assign(x=lambda t: t["x"] - 1), "curves by arm", log="xy")
    assert (ax.get_xscale(), ax.get_yscale()) == ("symlog", "log")


def test_heat_maps_side_by_side_are_titled_by_their_values():
    fig, _ = drawn(rows(), "heat map", y="arm", value="y: gain", also=({"value": "cost: price"},))
    assert [ax.get_title() for ax in fig.axes] == ["gain", "price"]


def test_an_axis_says_the_words_behind_its_column():
    plot = Plot("final by setting", x="n: logged rounds", y="score", y_label="score (1 optimal)")
    assert (plot.x, plot.x_label) == ("n", "logged rounds")
    assert (plot.y, plot.y_label) == ("score", "score (1 optimal)")


def test_places_stand_in_the_order_of_their_numbers_and_only_arms_that_are_there_take_room():
    table = pd.DataFrame({"x": ["1 step", "20 steps", "5 steps"], "arm": list("aba"), "y": [1.0, 2.0, 3.0]})
    _, ax = drawn(table, "distribution", arm=("arm",))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1 step", "5 steps", "20 steps"]
    medians = [line for line in ax.get_lines() if line.get_markeredgewidth() == 0.6 and len(line.get_xdata())]
    assert {(*line.get_xdata(), *line.get_ydata()) for line in medians} == {(0, 1), (1, 3), (2, 2)}


def test_recipes_have_their_papers_names_and_a_legend_the_words_behind_its_columns():
    table = rows().assign(recipe=rows()["arm"].map({"a": "grpo", "b": "turn_ppo"}), recipe_args="lr=1")
    fig, ax = drawn(table, "final by setting", arm=("recipe", "recipe_args: clip"), names={"lr=1": "slow"})
    assert ax.get_legend_handles_labels()[1] == ["GRPO, slow", "Turn-PPO, slow"]
    assert fig.legends[0].get_title().get_text() == "recipe, clip"


@pytest.mark.parametrize(
    ("keys", "words"),
    [(["seed"], "Seeds of a mark: 3."), (["run", "seed"], "Seeds of a mark: 6."),
     (["setting", "seed"], "Rows of a mark: 6, of 3 seeds."), (["setting"], "Rows of a mark: 2.")],
)  # fmt: skip
def test_a_caption_counts_the_seeds_behind_a_mark(keys, words):
    marks = {"x": [0, 1], "run": ["first", "fresh"], "setting": [0, 1], "seed": [0, 1, 2]}
    table = pd.MultiIndex.from_product([marks[k] for k in ["x", *keys]], names=["x", *keys]).to_frame(
        index=False
    )
    plot = Plot("final by setting", x="x", y="y")
    assert shared_plots.counted(table.assign(y=0.0), plot=plot) == words


def test_a_plot_reads_its_axes_arms_panel_conditions_and_those_of_the_plots_beside_it():
    beside = {"y": "ess: share", "where": {"task": "sums"}}
    plot = Plot(
        "strips", "accuracy: right", "lag", arm=("recipe: rule", "eps"), where={"policy": "toy"},
        also=(beside,),
    )  # fmt: skip
    assert plot.columns == {"accuracy", "lag", "recipe", "eps", "policy", "ess", "task"}
    assert [(each.y, each.x_label, each.y_label) for each in plot.plots] == [
        ("lag", "right", ""),
        ("ess", "right", "share"),
    ]
    assert plot.arm_labels == {"recipe": "rule"}
    heat = Plot("heat map", "lag", "recipe", value="accuracy: right", panel="seed: seed")
    assert heat.columns == {"lag", "recipe", "accuracy", "seed"}
    assert (heat.value_label, heat.panel_label) == ("right", "seed")
