"""Choosing learning rates, on tables made up so that the right choice is known.

Settings of arms chosen on pilot worlds.
"""

import math

import numpy as np
import pandas as pd
import pytest
from support.refusals import refuses

from analysis.experiment import EXPERIMENTS
from analysis.sweeps import tuning
from analysis.sweeps.tuning_knobs import KNOBS
from analysis.worlds.pilots import best as best_setting
from analysis.worlds.pilots import halved, inside, tuned
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.recipes import recipe

RATES = (1e-4, 3e-4, 1e-3, 3e-3)


def made(curves, seeds=3, spread=0.01, rates=RATES, **columns):
    """A table in which every arm (recipe, lag) has the median score curve[g] at rate g."""
    rows = [
        {"recipe": name, "lag": lag, "learning_rate": rate, "seed": seed, "last": score + spread * (seed - 1)}
        for (name, lag), curve in curves.items()
        for rate, score in zip(rates, curve, strict=True)
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows).assign(**columns)


def best(curve, **options):
    return tuning.best_rates(made({("grpo", 8): curve}), **options).iloc[0]


def test_every_arm_gets_the_rate_at_which_its_median_is_best():
    curves = {
        ("grpo", 0): (0.2, 0.5, 0.9, 0.1), ("grpo", 64): (0.3, 0.6, 0.2, 0.0), ("m2po", 0): (0, 0, 0, 0.7),
    }  # fmt: skip
    found = tuning.best_rates(made(curves)).set_index(["recipe", "lag"])["learning_rate"]
    assert found.to_dict() == {("grpo", 0): 1e-3, ("grpo", 64): 3e-4, ("m2po", 0): 3e-3}


def test_an_arm_without_a_value_of_a_setting_is_an_arm():
    frame = pd.concat(
        [made({("grpo", 8): (0, 1, 2, 3)}, eps=0.2), made({("grpo", 8): (3, 2, 1, 0)}, eps=np.nan)]
    )
    found = tuning.best_rates(frame, by=("recipe", "eps"))
    assert found["learning_rate"].tolist() == [3e-3, 1e-4]
    assert found["eps"].isna().tolist() == [False, True]


def test_it_is_the_median_over_seeds_and_one_lucky_seed_changes_nothing():
    frame = made({("grpo", 8): (0.1, 0.5, 0.4, 0.1)})
    lucky = (frame["learning_rate"] == 1e-3) & (frame["seed"] == 2)
    frame.loc[lucky, "last"] = 1.0
    row = tuning.best_rates(frame).iloc[0]
    assert (row["learning_rate"], row["score"], row["seeds"]) == (3e-4, 0.5, 3)


def test_of_equal_rates_the_smaller_is_taken():
    assert best((0.2, 0.9, 0.9, 0.9))["learning_rate"] == 3e-4


def test_the_width_is_the_unbroken_stretch_of_rates_that_are_as_good():
    wide = best((0.2, 0.86, 0.9, 0.87))
    assert wide["width"] == pytest.approx(1.0)
    assert best((0.2, 0.84, 0.9, 0.84))["width"] == 0.0
    assert best((0.88, 0.2, 0.9, 0.1))["width"] == 0.0, "a far rate as good does not make those between good"
    assert best((0.2, 0.84, 0.9, 0.84), within=0.1)["width"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("curve", "edge"), [((0.9, 0.5, 0.1, 0), "low"), ((0, 0, 0.1, 0.9), "high"), ((0, 0.9, 0.1, 0), "")]
)
def test_a_best_rate_at_the_end_of_the_grid_says_so(curve, edge):
    assert best(curve)["at_edge"] == edge


def test_the_common_rate_stands_beside_the_own_one():
    curves = {("grpo", 0): (0.2, 0.8, 0.9, 0.1), ("m2po", 0): (0.1, 0.7, 0.2, 0.1)}
    found = tuning.best_rates(made(curves)).set_index("recipe")
    assert set(found["common_rate"]) == {3e-4}, "best on average: 0.75 against 0.55"
    assert found["common_score"].to_dict() == {"grpo": 0.8, "m2po": 0.7}
    given = tuning.best_rates(made(curves), common=3e-3).set_index("recipe")
    assert given["common_score"].to_dict() == {"grpo": 0.1, "m2po": 0.1}
    with pytest.raises(UserError, match=r"No run has the common rate 0.5. The rates are 0.0001, 0.0003"):
        tuning.best_rates(made(curves), common=0.5)


def test_a_knob_is_tuned_with_the_rate_and_the_common_version_has_the_recipe_s_own():
    plain = made({("cispo", 8): (0.3, 0.5, 0.4, 0.1)}, recipe_args="default")
    wide = made({("cispo", 8): (0.3, 0.4, 0.8, 0.1)}, recipe_args="eps_high=4")
    row = tuning.best_rates(pd.concat([wide, plain]), knobs=("recipe_args",), common=1e-3).iloc[0]
    assert (row["learning_rate"], row["recipe_args"], row["score"]) == (1e-3, "eps_high=4", 0.8)
    assert row["common_score"] == 0.4
    assert row["width"] == 0.0
    tie = pd.concat([plain.assign(recipe_args="alpha=1"), plain])
    assert tuning.best_rates(tie, knobs=("recipe_args",)).iloc[0]["recipe_args"] == "default"


def test_of_steps_to_an_accuracy_fewer_are_better_and_never_is_worst():
    frame = made({("grpo", 8): (90, 40, 60, math.nan)}, spread=1).rename(columns={"last": "steps_to 0.5"})
    found = tuning.scores(frame, outcome="steps_to 0.5")
    assert found.set_index("learning_rate")["chosen"].to_dict() == {1e-4: 0, 3e-4: 1, 1e-3: 0, 3e-3: 0}
    assert found["score"].iloc[-1] == math.inf


def test_a_run_without_a_number_scores_worst():
    frame = made({("grpo", 8): (0.2, 0.5, 0.3, 0.1)})
    frame.loc[(frame["learning_rate"] == 3e-4) & (frame["seed"] > 0), "last"] = math.nan
    assert tuning.best_rates(frame).iloc[0]["learning_rate"] == 1e-3


def test_scores_keep_every_rate_with_the_range_of_its_seeds():
    found = tuning.scores(made({("grpo", 8): (0.2, 0.5, 0.3, 0.1)}))
    assert found["learning_rate"].tolist() == list(RATES)
    assert found["chosen"].tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(found.loc[1, ["low", "score", "high"]].astype(float), [0.49, 0.5, 0.51])


def test_rates_that_ran_on_fewer_seeds_are_refused_and_so_are_runs_that_are_there_twice():
    frame = made({("grpo", 8): (0.2, 0.5, 0.3, 0.1)})
    with pytest.raises(UserError, match=r"rates of grpo, 8 ran on other seeds .*0.0003: 2"):
        tuning.best_rates(frame[(frame["learning_rate"] != 3e-4) | (frame["seed"] > 0)])
    refuses("something else varies too", tuning.best_rates, pd.concat([frame, frame]))


def test_runs_take_the_rate_and_the_arguments_of_their_arm():
    chosen = pd.DataFrame(
        {"recipe": ["cispo", "grpo"], "lag": [8, 8], "learning_rate": [1e-3, 3e-4],
         "recipe_args": ["eps_high=4,eps_low=1", "default"]}
    )  # fmt: skip
    cells = tuning.at_best_rates([Run(recipe=name, lag=8, seed=5) for name in ("grpo", "cispo")], chosen)
    assert cells == (
        Run(recipe="grpo", lag=8, seed=5, learning_rate=3e-4),
        Run(recipe="cispo", lag=8, seed=5, learning_rate=1e-3, recipe_args=(("eps_high", 4), ("eps_low", 1))),
    )
    refuses("No rate was chosen for grpo, 16", tuning.at_best_rates, [Run(recipe="grpo", lag=16)], chosen)


def test_rates_around_one_lie_half_a_decade_apart():
    assert tuning.rates_around(3e-3) == (9.5e-05, 3e-4, 9.5e-4, 3e-3, 9.5e-3)


@pytest.mark.slow
def test_no_claim_is_judged_on_a_tuning_seed():
    judged = [each for each in EXPERIMENTS.values() if each.claims]
    used = {cell.seed for each in judged for cell in each.table_cells()}
    used |= {each.stop.fresh + each.stop.cap for each in EXPERIMENTS.values() if each.stop}
    assert max(used) < tuning.FIRST_SEED
    assert min(tuning.tuning_seeds(4)) == tuning.FIRST_SEED


@pytest.mark.parametrize("name", KNOBS)
def test_a_knob_is_the_recipe_s_own_and_tries_other_values_than_its_defaults(name):
    defaults = recipe[name].defaults
    for setting in KNOBS[name].others:
        recipe[name].bind(**dict(setting))()
        assert dict(setting) != {argument: defaults[argument] for argument, _ in setting}


def test_a_pull_back_to_the_start_goes_no_farther_than_the_steps_went():
    assert all(0 < alpha <= 1 for ((_, alpha),) in KNOBS["sfpo"].others)


def test_the_wide_clip_of_one_side_lies_where_the_ring_begins():
    ring = recipe["rec_ring"].defaults
    assert KNOBS["rec_oneside"].others == ((("eps_high", ring["far_high"]), ("eps_low", ring["far_low"])),)


@pytest.mark.parametrize(
    ("peak", "slope", "chosen", "ends"),
    [(2.0, 1.0, 2.0, False), (9.0, 1.0, 4.0, True), (-9.0, 1.0, 1.0, True), (9.0, 1e-3, 4.0, False)],
)
def test_the_best_setting_is_chosen_and_an_end_that_matters_is_seen(peak, slope, chosen, ends):
    grid = {"a": (1.0, 2.0, 3.0, 4.0), "b": (0.0, 1.0)}
    assert tuned(lambda a, b: -slope * abs(a - peak) - b, grid) == ({"a": chosen, "b": 0.0}, ends)


def test_a_knob_without_an_end_has_none():
    grid = {"rank": (1.0, 2.0, 4.0)}
    assert tuned(lambda rank: rank, grid) == ({"rank": 4.0}, True)
    assert tuned(lambda rank: rank, grid, endless=grid) == ({"rank": 4.0}, False)


def test_the_gate_names_arms_at_an_end():
    table = pd.DataFrame({"arm": ["x", "y", "y"], "at end": [0, 1, 0]})
    assert inside()(table) == inside(arm=("x", "y"))(table) == "at an end of its grid: y"
    assert inside(arm="x")(table) == ""


def test_a_finer_search_climbs_on_from_the_best_of_the_grid_in_steps_of_at_most_two():
    def score(rate, passes):
        return -abs(math.log(rate / 0.5)) - abs(passes - 5)

    grid = {"rate": (0.1, 0.3, 1.0, 10.0), "passes": (1, 2, 8)}
    assert best_setting(score, grid) == ({"rate": 0.3, "passes": 2}, [])
    found, ends = best_setting(score, grid, fine=True)
    assert (found, ends) == ({"rate": pytest.approx(0.3 / 0.3**0.5), "passes": 4}, [])
    assert halved(grid["rate"]) == pytest.approx(
        (0.1, 0.03**0.5, 0.3, 0.3**0.5, 1, 10**0.25, 10**0.5, 10**0.75, 10)
    )
    assert halved((0.0, 0.5, 1, 2.1, 2.1)) == (0.0, 0.5, 1, 2.1, 2.1), (
        "no step is above 2.1, and 0 has no ratio"
    )
    assert halved((2, 5)) == (2, 3, 5)
    assert best_setting(lambda rate: rate, {"rate": (1.0, 3.0)}, fine=True) == ({"rate": 3.0}, ["rate"])
