"""Cells take the rate that a committed table chose for their arm, arguments included."""

from dataclasses import replace

import pandas as pd
import pytest

from analysis.sweeps import tuned_cells
from analysis.sweeps.seeds_and_rates import Tuned
from analysis.sweeps.tuning import tuning_seeds
from analysis.tables.committed import Table
from testbed.config.run import Run
from testbed.errors import UserError

TABLE = pd.DataFrame(
    [{"recipe": "sfpo", "recipe_args": args, "learning_rate": rate, "seed": 10_000, "area": area}
     for args, rate, area in (*(("alpha=1,fast=3", 1e-3, 0.2), ("alpha=1,fast=3", 3e-3, 0.9)),
                              *(("alpha=0.8,fast=3", 1e-3, 0.8), ("alpha=0.8,fast=3", 3e-3, 0.1)))]
)  # fmt: skip


@pytest.fixture(autouse=True)
def committed(monkeypatch):
    monkeypatch.setattr(tuned_cells, "load_committed", lambda names: {names[0]: Table.of(names[0], TABLE)})


def test_arms_that_differ_in_arguments_alone_get_rates_of_their_own():
    run = Run(recipe="sfpo")
    cells = [replace(run, recipe_args=(("alpha", alpha), ("fast", 3))) for alpha in (0.8, 1.0)]
    found = tuned_cells.tuned(cells, "any", ("recipe", "recipe_args"), "area")
    assert [cell.learning_rate for cell in found] == [1e-3, 3e-3]
    assert [cell.recipe_args for cell in found] == [cell.recipe_args for cell in cells]


def test_the_cells_of_a_context_are_collected_with_their_arm_s_row_until_it_ends():
    cell = Run(recipe="sfpo", recipe_args=(("alpha", 0.8), ("fast", 3)))

    def ask():
        return tuned_cells.tuned([cell], "any", ("recipe", "recipe_args"), "area")

    with tuned_cells.choosing() as outer:
        ask()
        with tuned_cells.choosing() as inner:
            found = ask()
        ask()
    ask()
    assert [len(outer), len(inner)] == [2, 1]
    assert (inner[0][0], inner[0][1]["learning_rate"]) == (found[0], 1e-3)


def test_arms_without_a_rate_in_common_are_tuned_too(monkeypatch):
    apart = TABLE[TABLE["learning_rate"].eq(1e-3) == TABLE["recipe_args"].eq("alpha=0.8,fast=3")]
    monkeypatch.setattr(tuned_cells, "load_committed", lambda names: {names[0]: Table.of(names[0], apart)})
    cells = [Run(recipe="sfpo", recipe_args=(("alpha", alpha), ("fast", 3))) for alpha in (0.8, 1.0)]
    found = tuned_cells.tuned(cells, "any", ("recipe", "recipe_args"), "area")
    assert [cell.learning_rate for cell in found] == [1e-3, 3e-3]


def test_every_arm_is_tried_at_its_rates_on_tuning_seeds():
    arms, seeds = [Run(lag=0), Run(lag=8)], tuning_seeds(3)
    for rates, tried in (
        ((1e-3, 3e-3), [(0, 1e-3), (0, 3e-3), (8, 1e-3), (8, 3e-3)]),
        (lambda run: (run.lag + 1.0,), [(0, 1.0), (8, 9.0)]),
    ):
        found = Tuned(rates, pilots=3).tried(arms)
        asked = [(lag, rate, seed) for lag, rate in tried for seed in seeds]
        assert [(cell.lag, cell.learning_rate, cell.seed) for cell in found] == asked


def test_an_arm_that_was_not_tuned_is_refused():
    with pytest.raises(UserError, match="No rate was chosen"):
        tuned_cells.tuned([Run(recipe="grpo")], "any", ("recipe", "recipe_args"), "area")
