"""A sweep compared: differences paired by seed, and what the seeds are too few to say."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from support.command_line import call
from support.made_sweep import CELLS, STEPS, TOY, made
from support.refusals import refuses

from analysis.sweeps import sweep_comparison
from analysis.sweeps.sweep_comparison import compare, holm, improvement
from analysis.sweeps.sweep_table import load
from testbed.config.run import grid

FINAL = {"grpo": (0.5, 0.6, 0.7, 0.8), "m2po": (0.52, 0.59, 0.75, 0.82), "gspo": (0.9, 0.91, 1.12, 1.2)}


def level(run):
    return np.full(len(STEPS), FINAL[run.recipe][run.seed])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return load(made(tmp_path_factory.mktemp("s") / "s", grid(TOY, recipe=FINAL, seed=range(4)), level))


def test_differences_are_those_of_the_paired_t_test(rows):
    found = compare(rows, metric="final_accuracy").set_index("arm")
    assert list(found.index) == ["gspo", "m2po"]
    for name, row in found.iterrows():
        test = stats.ttest_rel(FINAL[name], FINAL["grpo"])
        assert row["difference"] == pytest.approx(np.mean(FINAL[name]) - 0.65)
        assert row["p"] == pytest.approx(test.pvalue)
        assert (row["low"], row["high"]) == pytest.approx(tuple(test.confidence_interval()))
    expected = holm(dict(found["p"]))
    assert dict(found["p_holm"]) == pytest.approx(expected)
    assert found["verdict"].tolist() == ["higher", "undecided"]


def test_equal_differences_have_no_interval_and_no_p(tmp_path):
    sweep = made(tmp_path / "s", grid(TOY, recipe=("grpo", "m2po"), seed=range(3)),
                 lambda run: np.full(len(STEPS), 0.5 + 0.1 * (run.recipe == "m2po")))  # fmt: skip
    (row,) = compare(load(sweep), metric="final_accuracy").to_dict("records")
    assert (row["low"], row["high"], row["p"], row["verdict"]) == (-math.inf, math.inf, 1.0, "undecided")


def test_numbers_that_differ_by_rounding_are_equal(tmp_path):
    added = {"grpo": 0.1 + 0.2, "m2po": 0.3, "gspo": 0.3 + 1e-9}
    sweep = made(tmp_path / "s", grid(TOY, recipe=tuple(added), seed=range(3)),
                 lambda run: np.full(len(STEPS), added[run.recipe] * (1 + 1e-16 * run.seed)))  # fmt: skip
    found = compare(load(sweep), metric="final_accuracy").set_index("arm")
    assert (found.loc["m2po", "verdict"], found.loc["m2po", "higher"]) == ("equal", 0.5)
    assert (found.loc["gspo", "verdict"], found.loc["gspo", "higher"]) == ("undecided", 1.0)


def test_holm_adjusts_as_in_a_worked_example():
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, then made monotone.
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}


def test_another_baseline_turns_the_sign(rows):
    there = compare(rows, baseline="gspo").set_index("arm").loc["grpo"]
    here = compare(rows).set_index("arm").loc["gspo"]
    assert there["difference"] == pytest.approx(-here["difference"])
    assert there["higher"] == pytest.approx(1 - here["higher"])
    assert there["verdict"] == "lower"


def test_the_seeds_asked_for_would_decide_what_was_seen(rows):
    row = compare(rows).set_index("arm").loc["m2po"]
    less = np.subtract(FINAL["m2po"], FINAL["grpo"])
    n, alpha = int(row["seeds_needed"]), 0.05 / 2
    power = stats.nct.sf(stats.t.isf(alpha / 2, n - 1), n - 1, less.mean() / less.std(ddof=1) * math.sqrt(n))
    assert power == pytest.approx(0.8, abs=0.04)
    assert math.isnan(compare(rows).set_index("arm").loc["gspo", "seeds_needed"])
    row = {"verdict": "undecided", "spread": 0.1, "difference": 1.0, "seeds": 4}
    assert sweep_comparison._needed(row, alpha) == 5  # at least one more than there are
    assert sweep_comparison._needed({**row, "difference": -1.0}, alpha) == 5
    for off in ({"difference": 0.0}, {"spread": 0.0}, {"spread": math.nan}, {"verdict": "higher"}):
        assert math.isnan(sweep_comparison._needed({**row, **off}, alpha))


def test_what_else_varies_is_a_setting_and_collapse_is_counted(tmp_path):
    found = compare(load(made(tmp_path / "s"))).set_index("setting")
    assert list(found.index) == ["lag 0", "lag 8", "lag 64"]
    assert found.loc["lag 8", "verdict"] == "equal"
    none = {"difference": 0.0, "spread": 0.0, "mean": 0.0, "baseline_mean": 0.0}
    assert sweep_comparison._verdict(none, 0.05) == "both 0", "nothing was measured"
    lost = found.loc["lag 64"]
    assert (lost["collapsed"], lost["baseline_collapsed"]) == (1, 0)
    assert lost["collapsed_low"] == pytest.approx(0.51, abs=0.005)
    assert lost["higher"] == 0
    by_lag = compare(load(tmp_path / "s"), by="lag", baseline="8")
    assert set(by_lag["setting"]) == {"grpo", "reinforce"}
    assert set(by_lag["arm"]) == {"lag 0", "lag 64"}


def test_seeds_without_a_partner_or_a_number_are_counted(tmp_path):
    cells = [
        cell
        for cell in grid(TOY, recipe=["grpo", "m2po"], seed=range(4))
        if cell.seed or cell.recipe == "grpo"
    ]
    rows = load(made(tmp_path / "s", cells))
    lost = (rows["recipe"] == "grpo") & (rows["seed"] == 1)
    rows["reward/mean"] = rows["reward/mean"].mask(lost)
    (row,) = compare(rows, metric="reward/mean").to_dict("records")
    assert (row["seeds"], row["left_out"]) == (2, 2)
    assert row["baseline_mean"] == pytest.approx(row["mean"] - row["difference"])  # of the same seeds


def test_the_chance_of_improvement_has_an_interval_at_its_ends():
    above = improvement(np.array([3.0, 4.0]), np.array([1.0, 2.0]))
    assert (above.center, above.high) == (1, 1)
    assert 0.2 < above.low < 0.6
    same = improvement(np.ones(3), np.ones(3))
    assert same.center == 0.5
    assert same.low == pytest.approx(1 - same.high)
    n, low = 2, above.low
    variance = low * (1 - low) * (1 + (n - 1) * ((1 - low) / (2 - low) + low / (1 + low))) / n**2
    assert (1 - low) == pytest.approx(1.959964 * math.sqrt(variance), rel=1e-5)


@pytest.mark.parametrize(
    "options",
    [{"baseline": "grop"}, {"by": "recip"}, {"by": "lag"}, {"metric": "acuracy"}],
)  # fmt: skip
def test_what_cannot_be_compared_is_one_message(rows, options):
    refuses(".", compare, rows, **options)


def test_arms_that_share_no_seed_are_not_compared(tmp_path):
    cells = [*grid(TOY, recipe=["grpo"], seed=[0, 1]), *grid(TOY, recipe=["m2po"], seed=[2, 3])]
    refuses("nothing can be paired", compare, load(made(tmp_path / "s", cells)))


def printed(capsys, *words):
    return call(capsys, "compare", *words)


def test_the_command_prints_for_people_machines_and_papers(tmp_path, capsys):
    folder = made(tmp_path / "a_b", CELLS)
    code, out, _ = printed(capsys, folder, "--json")
    data = json.loads(out)
    assert (code, data["metric"], len(data["rows"])) == (0, "accuracy", 3)
    _, out, _ = printed(capsys, folder, "--markdown", "--metric", "final_accuracy")
    lines = out.splitlines()
    assert lines[1] == "|" + " --- |" * 10
    assert lines[-1].startswith("| lag 64 | reinforce | 4 | 0 | -0.915 ")
    _, out, _ = printed(capsys, folder, "--latex", "--metric", "final_accuracy")
    assert r"final\_accuracy" in out
    assert out.count(r"\\") == 4
    _, out, err = printed(capsys, folder)
    assert "accuracy: the mean of the last 3 logged rows of accuracy." in out
    assert "undecided" in out or "lower" in out
    assert err == ""
    assert printed(capsys, folder, "--json", "--latex")[0] == 2


def test_a_sweep_of_one_recipe_is_compared_along_what_varies_as_its_report_does(tmp_path, capsys):
    cells = grid(
        TOY, learning_rate=[1e-3, 3e-3], recipe_args=[(("eps", 0.2),), (("eps", 0.4),)], seed=range(4)
    )
    folder = made(tmp_path / "s", cells)
    code, out, _ = printed(capsys, folder, "--json")
    assert (code, json.loads(out)["by"]) == (0, "learning_rate")
    from paper_figs.report_page import _comparison

    table = _comparison(load(folder), "accuracy")
    assert "learning rate 0.003" in table
    assert "eps 0.4" in table
    refuses("Only the seed varies", compare, load(made(tmp_path / "t", grid(TOY, seed=range(4)))))


@pytest.mark.slow
def test_the_names_that_tables_print_are_accepted(tmp_path, capsys):
    cells = grid(
        TOY, learning_rate=[1e-3, 3e-3], recipe_args=[(("eps", 0.2),), (("eps", 0.4),)], seed=range(4)
    )
    folder = made(tmp_path / "s", cells)
    _, plain, _ = printed(capsys, folder, "--by", "learning_rate", "--baseline", "0.003", "--json")
    for by, baseline in (("learning rate", "learning rate 0.003"), ("learning_rate", "3e-3")):
        assert printed(capsys, folder, "--by", by, "--baseline", baseline, "--json")[1] == plain
    _, where, _ = printed(capsys, folder, "--by", "learning_rate", "--where", "recipe_args.eps=0.2", "--json")
    assert printed(capsys, folder, "--where", "eps=0.20", "--json")[1] == where
    for name in ("final", "best", "smallest ESS", "collapsed"):
        assert printed(capsys, folder, "--metric", name)[0] == 0


def test_the_headings_of_a_tabular_summary_are_metrics(tmp_path):
    from support.made_sweep import columns

    from analysis.sweeps.sweep_table import per_cell
    from analysis.tables.value_table import value_table

    rows = pd.DataFrame(columns(CELLS[:4])).drop(columns="accuracy")
    rows["exact/value"] = np.tile(np.sin(STEPS), 4) + rows["seed"]
    rows["exact/ess_kish_sequence"] = rows["exact/value"] + 2
    (row,) = value_table(rows).to_dict("records")
    for heading, key in (("final", "final"), ("best", "best"), ("exact ESS", "ess_exact")):
        assert per_cell(rows, heading)[heading].mean() == pytest.approx(row[key])


def test_cells_without_a_result_are_mentioned(tmp_path, capsys):
    cells = grid(TOY, steps=[100, 200], recipe=["grpo", "m2po"], seed=range(2))  # a pack per number of steps
    folder = made(tmp_path / "s", cells)
    next((folder / "packs").iterdir()).unlink()
    code, _, err = printed(capsys, folder)
    assert code == 0
    assert "4 planned cells without a result" in err
