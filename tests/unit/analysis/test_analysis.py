"""Intervals, collapse, tails, condensed tables and looks, on hand-made numbers with hand-computed answers."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from support.refusals import refuses

from analysis.judging import seed_intervals
from analysis.tables import committed as load
from analysis.tables import condensed as condense
from analysis.tables import outcomes as collapse
from analysis.tables import sampled_ess as ess
from analysis.tables import tails
from testbed.diagnostics.metric_names import HISTOGRAM_EDGES, METRICS

ESS, FLOOR, HISTOGRAM = collapse.ESS, collapse.ESS_FLOOR, tails.HISTOGRAM


def curve(accuracy, recipe="grpo", lag=0, seed=0, **columns):
    """Logged rows of one cell at steps 0, 10, 20, …"""
    steps = 10 * np.arange(len(accuracy))
    return pd.DataFrame(
        {"recipe": recipe, "lag": lag, "seed": seed, "step": steps, "accuracy": accuracy, **columns}
    )


def histogram(*log_rho):
    index = np.searchsorted(HISTOGRAM_EDGES, np.array(log_rho), side="right")
    return np.bincount(index, minlength=tails.BINS).tolist()


def toy_rows(recipes=("grpo", "reinforce"), lags=(0, 64), seeds=(0, 1), steps=(0, 50, 100)):
    rows = [{"cell": f"{recipe}/{lag}/{seed}", "task": "copy", "policy": "toy", "recipe": recipe, "lag": lag,
             "seed": seed, "learning_rate": 0.003, "step": step, "accuracy": 0.2 + 0.006 * step,
             ESS: 1 / (1 + lag), FLOOR: 1 / 64, HISTOGRAM: histogram(0.0, 0.1 * lag)}
            for recipe in recipes
            for lag in lags
            for seed in seeds
            for step in steps]  # fmt: skip
    return pd.DataFrame(rows)


def tabular_rows(**sweep):
    rows = toy_rows(**sweep)
    rows = rows.drop(columns=["accuracy", HISTOGRAM]).assign(policy="tabular", cell="tabular/" + rows["cell"])
    return rows.assign(**{ess.EXACT: np.exp(-rows["lag"] / 8 - rows["step"] / 100)})


def test_few_seeds_give_their_range_and_say_what_it_covers():
    found = seed_intervals.median_interval([3.0, 1.0, 2.0])
    assert (found.center, found.low, found.high, found.n) == (2.0, 1.0, 3.0, 3)
    assert found.level == 0.75
    assert found.method == "range of the seeds"


@pytest.mark.parametrize(
    ("n", "rank", "level"), [(8, 1, 1 - 2 / 256), (9, 2, 1 - 20 / 512), (20, 6, 0.958610)]
)
def test_the_median_interval_takes_the_tabulated_order_statistics(n, rank, level):
    found = seed_intervals.median_interval(np.arange(1, n + 1))
    assert (found.low, found.high) == (rank, n + 1 - rank)
    assert found.level == pytest.approx(level, abs=1e-6)


def test_the_median_interval_of_thousands_of_values_is_that_of_the_counted_ones(monkeypatch):
    counted = seed_intervals.median_interval(np.arange(1001.0))
    monkeypatch.setattr(seed_intervals, "COUNTED", 0)
    found = seed_intervals.median_interval(np.arange(1001.0))
    assert (found.low, found.high) == (counted.low, counted.high)
    assert found.level == pytest.approx(counted.level, abs=1e-12)
    assert seed_intervals.median_interval(np.arange(5.0), 0.9).level == pytest.approx(1 - 2.0**-4)
    assert seed_intervals.median_interval(np.arange(20_000.0)).level == pytest.approx(0.95, abs=0.01)


def test_one_seed_has_a_median_and_no_coverage():
    assert seed_intervals.median_interval([0.4]) == seed_intervals.Interval(
        0.4, 0.4, 0.4, 1, "range of the seeds", 0.0
    )


def test_the_student_interval_is_mean_plus_minus_t_standard_errors():
    found = seed_intervals.student_interval([1.0, 2.0, 3.0])
    assert (found.low, found.high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), abs=1e-6)
    assert seed_intervals.student_interval([5.0]).high == math.inf


@pytest.mark.parametrize(
    ("interval", "successes", "low", "high"),
    [(seed_intervals.wilson_interval, 8, 0.490162, 0.943318),
     (seed_intervals.wilson_interval, 0, 0.0, 0.277533),
     (seed_intervals.clopper_pearson_interval, 8, 0.443905, 0.974789),
     (seed_intervals.clopper_pearson_interval, 10, 0.691503, 1.0)],
)  # fmt: skip
def test_intervals_of_a_share_of_ten_match_published_tables(interval, successes, low, high):
    found = interval(successes, 10)
    assert (found.center, found.low, found.high) == pytest.approx((successes / 10, low, high), abs=1e-6)


def test_a_missing_seed_is_refused_and_a_share_must_be_one():
    refuses("1 of them NaN", seed_intervals.median_interval, [1.0, np.nan])
    refuses("given 3 of 2", seed_intervals.wilson_interval, 3, 2)


def test_prosperity_before_collapse_is_found_and_dated():
    found = collapse.outcome(curve([0.1, 0.5, 0.8, 0.9, 1.0, 0.8, 0.6, 0.3, 0.0, 0.0]))
    assert found["best"] == pytest.approx(0.9)
    assert found["peak_step"] == 40  # 0.8, 0.9, 1.0 end there and come before 0.9, 1.0, 0.8
    assert found["final"] == pytest.approx(0.1)
    assert found["collapsed"] == 1.0
    # Means of three: …, 0.8 at 60, 0.567 at 70, 0.3 at 80: the first below 0.45 and so from there on.
    assert found["collapse_step"] == 80


@pytest.mark.parametrize(
    ("accuracy", "why"),
    [([0.1, 0.5, 0.9, 0.9, 0.9, 0.5, 0.5, 0.5], "more than half is kept"),
     ([0.1, 0.1, 0.2, 0.1, 0.1, 0.0, 0.0, 0.0], "it never rose"),
     ([0.9, 0.5, 0.1, 0.0, 0.0, 0.0], "it only fell: nothing was learned that could be lost"),
     ([0.1, 0.1, 0.6, 0.1, 0.1, 0.1, 0.1], "one lucky evaluation is no peak"),
     ([0.1, 0.9, 0.9, 0.9, 0.0, 0.0, 0.9, 0.9], "it came back")],
)  # fmt: skip
def test_other_fates_are_not_called_collapse(accuracy, why):
    assert collapse.outcome(curve(accuracy))["collapsed"] == 0.0, why


def test_the_definition_is_open_to_change():
    rows = curve([0.1, 0.5, 0.9, 0.9, 0.9, 0.5, 0.5, 0.5])
    assert collapse.outcome(rows, kept=0.6)["collapsed"] == 1.0
    assert collapse.outcome(rows, kept=0.6, rise=0.85)["collapsed"] == 0.0
    assert collapse.outcome(curve([0.1, 0.1, 0.9, 0.1, 0.1]), window=1)["collapsed"] == 1.0


def test_a_lost_accuracy_counts_as_zero_and_divergence_apart():
    rows = curve([0.1, 0.9, 0.9, 0.9, np.nan, np.nan, np.nan], diverged=[0, 0, 0, 0, 1, 1, 1])
    found = collapse.outcome(rows)
    assert (found["final"], found["collapsed"], found["diverged"]) == (0.0, 1.0, 1.0)
    frozen = collapse.outcome(curve([0.1, 0.9, 0.9, 0.9], diverged=[0, 0, 0, 1]))
    assert (frozen["collapsed"], frozen["diverged"]) == (0.0, 1.0)


def test_two_rows_are_enough_for_an_outcome_and_row_order_does_not_matter():
    rows = curve([0.2, 0.4])
    assert collapse.outcome(rows)["final"] == pytest.approx(0.3)
    long = curve([0.1, 0.5, 0.8, 0.9, 1.0, 0.8, 0.6, 0.3, 0.0, 0.0])
    assert collapse.outcome(long.iloc[::-1]) == collapse.outcome(long)


def test_the_summary_has_one_row_per_recipe_and_lag():
    fall, hold = [0.1, 0.9, 0.9, 0.9, 0.0, 0.0, 0.0], [0.1, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7]
    frame = pd.concat(
        [curve(fall, "reinforce", 64, 0, **{ESS: 0.02, FLOOR: 1 / 64}),
         curve(hold, "reinforce", 64, 1, **{ESS: [0.5] * 6 + [0.03], FLOOR: 1 / 64}),
         curve(hold, "grpo", 64, 0, **{ESS: 0.4, FLOOR: 1 / 64})]
    )  # fmt: skip
    grpo, reinforce = collapse.summary_table(frame).to_dict("records")
    assert (grpo["recipe"], grpo["seeds"], grpo["collapsed"]) == ("grpo", 1, 0.0)
    assert (reinforce["lag"], reinforce["seeds"], reinforce["collapsed"]) == (64, 2, 0.5)
    assert [reinforce[f"final{x}"] for x in ("", "_low", "_high")] == pytest.approx([0.35, 0, 0.7])
    assert (reinforce["best"], reinforce["ess_min"]) == pytest.approx((0.8, 0.02))
    assert [reinforce[f"collapsed_{x}"] for x in ("low", "high")] == pytest.approx([0.0945, 0.9055], abs=1e-4)
    some = frame.assign(eps=np.where(frame["recipe"] == "grpo", np.nan, 0.2))  # grpo lacks it, and stays
    assert collapse.summary_table(some)["seeds"].tolist() == [1, 2]


def test_a_table_that_cannot_be_summarized_says_why():
    refuses("lacks the column.s. accuracy", collapse.summary_table, curve([0.1]).drop(columns="accuracy"))
    refuses("varies something else too", collapse.cells, pd.concat([curve([0.1]), curve([0.2])]))
    refuses("no rows", collapse.cells, curve([]))


def test_exceedance_counts_what_is_at_or_above_each_edge():
    share_E = tails.exceedance(histogram(-20.0, 0.0, 0.3, 20.0))
    at = {float(edge): float(share) for edge, share in zip(HISTOGRAM_EDGES, share_E, strict=True)}
    assert (at[-16.0], at[0.0], at[0.25], at[0.5], at[16.0]) == (0.75, 0.75, 0.5, 0.25, 0.25)


def test_pooling_leaves_out_the_steps_before_the_lag_is_in_effect():
    found = tails.pool(toy_rows(recipes=("grpo",), steps=(0, 50, 100)))
    assert found[["lag", "seed", "ratios"]].to_numpy().tolist() == [
        [0, 0, 4], [0, 1, 4], [64, 0, 2], [64, 1, 2],
    ]  # fmt: skip


def test_shares_above_a_ratio_are_those_of_each_run():
    frame = pd.DataFrame(
        {"seed": [0, 1], "ratios": [1, 3],
         HISTOGRAM: [histogram(1.1), " ".join(map(str, histogram(0, 0, 1.1)))]}
    )  # fmt: skip
    found = tails.exceedances(frame, ["seed"])
    assert found[found["log rho"] == 1.0]["share"].tolist() == [1.0, pytest.approx(1 / 3)]
    assert found["log rho"].min() == -0.75  # a step from where the first share is below 1
    refuses("No step after the lag has sequence ratios", tails.exceedances, frame.assign(ratios=0), ["seed"])
    wide = tails.exceedances(frame.assign(**{HISTOGRAM: [histogram(-0.9), histogram(1.1)]}), ["seed"])
    medians = wide.groupby("log rho")["share"].median()
    assert (medians.diff().dropna() <= 0).all(), "one seed ends early: its zeros stay, and no median rises"
    assert wide.groupby("log rho")["seed"].nunique().eq(2).all()


def test_histograms_of_other_bins_are_refused():
    refuses("3 counts, expected 130", tails.counts, pd.Series(["1 2 3"]))


def test_the_deepest_row_of_each_run_is_chosen_by_its_exact_ess():
    frame = pd.DataFrame({"recipe": "grpo", "lag": [8, 8, 8, 0], "seed": 1, "step": [10, 20, 30, 20]})
    frame[ess.EXACT] = [0.5, 0.01, 0.01, 1.0]
    assert ess.deepest(frame)[["lag", "step"]].to_numpy().tolist() == [[0, 20], [8, 20]]


def test_overstatement_leaves_out_what_is_below_the_floor_by_construction():
    frame = pd.DataFrame(
        {"seed": 0, ess.EXACT: [0.001, 0.01, 0.05, 0.5], ESS: [0.02, 0.02, 0.1, 0.5], FLOOR: 0.01}
    )
    found = ess.overstatement(frame)
    assert found["rows"].tolist() == [2]
    assert found["log_ratio"].iloc[0] == pytest.approx(math.log(2))


def test_results_condense_into_three_tables_whatever_the_order_of_rows():
    frame = pd.concat([toy_rows(), tabular_rows()])
    tables = condense.condense(frame)
    assert sorted(tables) == ["ess-collapse", "ratio-tails", "staleness"]
    assert list(tables["staleness"].frame.columns)[:6] == ["recipe", "lag", "seed", "step", "accuracy", ESS]
    assert tables["staleness"].about["recipes"] == ["grpo", "reinforce"]
    assert tables["ess-collapse"].about["cells"] == 8
    assert tails.pool(tables["ratio-tails"].frame)["ratios"].sum() == 24
    again = condense.condense(frame.sample(frac=1.0, random_state=1))
    assert {name: table.csv for name, table in again.items()} == {n: t.csv for n, t in tables.items()}


def test_the_same_cell_from_two_folders_counts_once_and_a_second_setting_is_refused():
    rows = toy_rows()
    assert (
        condense.condense(pd.concat([rows, rows]))["staleness"].csv
        == condense.condense(rows)["staleness"].csv
    )
    other = rows.assign(learning_rate=0.1, cell="other")
    refuses(r"differ in learning_rate;", condense.condense, pd.concat([rows, other]))


def test_a_large_table_loses_steps_but_keeps_its_ends_and_the_deepest_rows():
    rows = pd.concat([toy_rows(steps=range(0, 1000, 10)), tabular_rows()])
    small = condense.condense(rows, limit=8000)["staleness"]
    steps = sorted(set(small.frame["step"]))
    assert len(small.csv) <= 8000
    assert (steps[0], steps[-1]) == (0, 990)
    assert 3 < len(steps) < 100
    long = tabular_rows(steps=range(0, 1000, 10))
    deep = (long["step"] == 370) & (long["seed"] == 1)
    long.loc[deep, ess.EXACT] = 1e-9
    small = condense.condense(long, limit=8000)["ess-collapse"].frame
    assert (small[small["seed"] == 1].groupby(["recipe", "lag"])[ess.EXACT].min() == 1e-9).all()
    assert 370 not in set(small.loc[small["seed"] == 0, "step"])
    refuses("Export fewer", condense.condense, rows, limit=100)


def test_rows_that_fill_no_table_are_refused():
    refuses("Policies found: tabular", condense.condense, tabular_rows().drop(columns=ess.EXACT))


def test_committed_tables_are_checked_against_their_manifest(tmp_path):
    tables = condense.condense(toy_rows())
    (tmp_path / "staleness.csv").write_bytes(tables["staleness"].csv)
    (tmp_path / "manifest.json").write_text(json.dumps(condense.describe({"staleness": tables["staleness"]})))
    read = load.load_committed(folder=tmp_path)["staleness"]
    assert read.frame.equals(tables["staleness"].frame)
    assert condense.load_tables(tmp_path)["staleness"].sha256 == tables["staleness"].sha256
    refuses("Did you mean 'staleness'", load.load_committed, ["stalenes"], tmp_path)
    (tmp_path / "staleness.csv").write_bytes(tables["staleness"].csv.replace(b"grpo", b"gspo"))
    refuses("edited or truncated", load.load_committed, folder=tmp_path)


def test_a_folder_without_results_or_tables_says_what_to_give(tmp_path):
    refuses("no readable manifest", load.load_committed, folder=tmp_path)
    for folder in (tmp_path, tmp_path / "absent"):
        refuses("is not a results folder", condense.load_tables, folder)


def test_every_metric_that_tables_keep_is_logged_under_that_name():
    for name in (*condense.STALENESS, *condense.ESS_COLLAPSE, HISTOGRAM):
        assert name in METRICS, name
