"""What a report card says of training: a tuned rate, the largest safe lag, sides with their chance."""

import itertools

import numpy as np
import pandas as pd
import pytest

from analysis.cards import card_rows
from analysis.cards.card_rows import safe_lag, side, training_rows, tuned
from analysis.experiments.cards import card_training
from analysis.experiments.cards.card_training import ARMS, arms_of, by_arm


def cells(arms, steps=np.nan, collapsed=0.0):
    parts = [
        pd.DataFrame(
            {
                "recipe": "mine",
                "arm": arm,
                "seed": range(len(x)),
                "accuracy": x,
                "collapsed": collapsed,
                "steps_to 0.5": steps,
            }
        )
        for arm, x in arms.items()
    ]
    return pd.concat(parts, ignore_index=True)


def series(*values):
    return pd.Series(values, index=range(len(values)))


def test_training_is_summed_up_by_medians_with_the_range_of_few_seeds():
    found = cells(
        {"on-policy": [0.1, 0.9, 0.7, 0.8]}, steps=[100.0, np.nan, np.nan, np.nan], collapsed=[0, 0, 0, 1.0]
    )
    row = training_rows(found).loc["mine"]
    assert [row[f"accuracy on-policy{end}"] for end in ("", " low", " high")] == [0.75, 0.1, 0.9]
    assert (row["collapsed"], row["seeds on-policy"]) == (0.25, 4)
    assert np.isinf(row["steps on-policy"])
    assert row["steps on-policy low"] == 100


def test_collapses_at_a_rate_that_is_only_tried_do_not_count():
    found = cells({"lag 64": [0.5, 0.5]}).assign(collapsed=0.0)
    tried = cells({"rate 0.01": [0.0, 0.0]}).assign(collapsed=1.0)
    assert training_rows(pd.concat([found, tried])).loc["mine", "collapsed"] == 0.0


def test_a_seed_is_judged_at_the_rate_that_the_other_seeds_choose():
    found = tuned(
        {"lag 64": series(0.5, 0.5, 0.9), "rate 0.001": series(0.6, 0.6, 0.1), "rate 0.01": series(0, 0, 0)}
    )
    # Seeds 0 and 1 see 1.4 against .7; seed 2 sees 1.0 against 1.2, and loses by it.
    assert list(found) == [0.5, 0.5, 0.1]


def test_equal_rates_leave_the_common_one():
    found = tuned({"lag 64": series(0.9, 0.4, 0.6), "rate 0.001": series(0.1, 0.5, 0.5)})
    assert found[0] == 0.9


def test_a_lag_is_safe_while_the_median_seed_and_all_smaller_lags_lose_little():
    fresh = series(0.8, 0.9, 1.0)
    lost = {"lag 16": 0.05, "lag 64": 0.3, "lag 128": 0.0, "lag 256": 0.0}
    found = safe_lag({"on-policy": fresh, **{arm: fresh - loss for arm, loss in lost.items()}})
    assert found == {"safe lag": 16.0, "safe lag low": 16.0, "safe lag high": 16.0}


def test_the_safe_lag_has_the_interval_of_what_is_lost():
    fresh = series(0.8, 0.9, 1.0)
    found = safe_lag({"on-policy": fresh, "lag 16": series(0.8, 0.85, 0.7), "lag 64": series(0.8, 0.6, 0.6)})
    assert found == {"safe lag": 16.0, "safe lag low": 0.0, "safe lag high": 64.0}


def test_what_learns_nothing_on_fresh_data_has_no_safe_lag():
    assert np.isnan(safe_lag({"on-policy": series(0.05, 0.06), "lag 16": series(0.05, 0.06)})["safe lag"])


def test_an_objective_at_the_median_is_given_a_side_with_the_chance_that_is_stated():
    """All 2^8 sequences of sides, each as likely: the two looks together."""
    named = [side(pd.Series(seeds), 0.5) for seeds in itertools.product((0.0, 1.0), repeat=8)]
    assert named.count("above") / 256 == pytest.approx(1 / 32 + 5 / 256, abs=1e-12)
    assert named.count("below") == named.count("above")


def test_a_side_needs_five_seeds_and_ties_are_on_none():
    assert side(series(0.9, 0.9, 0.9, 0.9), 0.5) == ""
    assert side(series(0.9, 0.9, 0.9, 0.9, 0.5), 0.5) == ""
    assert side(series(0.9, 0.9, 0.9, 0.9, 0.9), 0.5) == "above"
    assert side(series(0.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1), 0.5) == "below"


def test_every_arm_is_told_from_every_other_in_a_results_folder():
    assert len({card_training._place(run) for run in ARMS.values()}) == len(ARMS)
    assert len(set(ARMS) - set(card_rows.SHOWN)) == len(card_training.OTHER_RATES)


def test_an_objective_that_reads_no_advantage_is_not_told_of_wrong_answers_alone():
    assert "negatives only" in arms_of("cispo")
    assert set(ARMS) - set(arms_of("rebel")) == {"negatives only"}


@pytest.mark.slow
def test_runs_of_every_arm_become_a_row_each(tmp_path):
    from dataclasses import replace

    from analysis.tables.committed import load_results
    from testbed.execution.runner import run_sweep

    # Two steps are too few for a lag to be told from the others by its data, not by its name.
    tiny = [
        replace(run, steps=2, prompts=8, group=2, warm_start_steps=2) for run in arms_of("cispo").values()
    ]
    run_sweep(tiny, tmp_path / "r", workers=0)
    table = by_arm(load_results(tmp_path / "r"))
    assert list(table.frame["arm"]) == list(ARMS)
