"""Lag and rate: recipes dealt over seeds, worlds in which one law holds, rates chosen on other seeds."""

import itertools
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from support.deciding import word

from analysis.experiments.lag import lag_and_rate
from analysis.experiments.lag.lag_and_rate import EXPERIMENT, KL, LAGS, ON_THE_WAY, RATES


def world(lost, seeds=range(100, 116), recipes=("grpo",)):
    """A table in which staleness costs lost(lag, rate), a little more on some seeds; KL grows with rate^2."""
    keys = itertools.product(recipes, LAGS, RATES, seeds)
    table = pd.DataFrame(keys, columns=["recipe", "lag", "learning_rate", "seed"])
    cost = [lost(lag, rate) for lag, rate in zip(table["lag"], table["learning_rate"], strict=True)]
    accuracy = 0.9 - np.array(cost) + table["seed"] % 10 / 1e3
    drift = table["lag"] * table["learning_rate"] ** 2
    return table.assign(accuracy=accuracy, collapsed=accuracy < 0.45, **{KL: drift, ON_THE_WAY: accuracy})


def said(name, table):
    return word(EXPERIMENT.claims[name].function(table))


@pytest.mark.slow
def test_four_seeds_have_all_recipes_and_a_run_has_every_recipe_six_times():
    cells = EXPERIMENT.cells_at(range(100, 124))
    assert len(cells) == 24 * 3 * len(LAGS) * len(RATES)
    pairs = {(cell.seed, cell.recipe) for cell in cells}
    assert set(Counter(recipe for _, recipe in pairs).values()) == {6}
    assert len({recipe for seed, recipe in pairs if seed < 104}) == 12


@pytest.mark.parametrize(
    ("lost", "better", "worse"),
    [
        (lambda lag, rate: 0.2 * np.log1p(lag * rate), "than-lag", None),
        (lambda lag, _: 0.1 * np.log1p(lag), "than-rate", "than-lag"),
        (lambda lag, rate: (lag > 0) * 50 * rate, "than-lag", "than-rate"),
    ],
)
def test_where_one_law_holds_its_sign_orders_losses_best(lost, better, worse):
    table, name = world(lost), "lag-times-rate-orders-losses-better-"
    assert said(name + better, table) == "supported"
    assert worse is None or said(name + worse, table) == "refuted"


def test_equal_products_cost_alike_only_where_the_product_counts():
    name = "equal-lag-times-rate-costs-alike"
    assert said(name, world(lambda lag, rate: 0.2 * np.log1p(lag * rate))) == "supported"
    assert said(name, world(lambda lag, rate: (lag > 0) * 50 * rate)) == "refuted"


def test_who_does_not_learn_on_policy_has_nothing_to_lose():
    table = world(lambda lag, rate: 0.8 if rate == RATES[-1] else 0.01 * lag * rate)
    assert set(lag_and_rate.losses(table)["rate"]) == set(RATES[:2])
