"""Cells written as a sweep file give the same cells again, or are refused."""

from dataclasses import replace

import pytest

from testbed.config.run import Run, grid
from testbed.config.toml_file import from_toml
from testbed.config.toml_text import as_toml, groups

BASE = Run(task="running-sum", policy="toy", task_args=(("digits", 4),), learning_rate=3e-3)


@pytest.mark.parametrize(
    "cells",
    [
        (BASE,),
        (Run(),),
        grid(BASE, recipe=["grpo", "m2po"], lag=[0, 16], seed=range(8)),
        grid(BASE, learning_rate=[1e-3, 0.1], recipe_args=[(("eps", 0.1),), (("eps", 0.2),)]),
        grid(BASE, recipe_args=[(("a", i), ("b", name)) for i in (1, 2) for name in ("x", 'y"\\')]),
        grid(BASE, anchor=["recipe", "old"], steps=[10, 20], seed=[0, 2]),
    ],
)
def test_a_grid_comes_back_from_its_text(cells, tmp_path):
    text = as_toml(cells)
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    assert set(from_toml(file)) == set(cells)
    assert as_toml(cells[::-1]) is not None


def test_eight_seeds_are_a_range():
    assert 'seed = "0..7"' in as_toml(grid(BASE, seed=range(8)))
    assert "seed = [0, 2, 4, 6]" in as_toml(grid(BASE, seed=range(0, 8, 2)))


@pytest.mark.parametrize(
    "cells",
    [
        (BASE, replace(BASE, lag=8, seed=1)),
        (BASE, replace(BASE, recipe_args=(("eps", 0.1),))),
        grid(BASE, recipe_args=[(("a", 1), ("b", 2)), (("a", 2), ("b", 1))]),
    ],
)
def test_what_is_no_grid_has_no_text(cells):
    assert as_toml(cells) is None


def test_recipes_with_other_dials_are_grids_of_their_own():
    grpo, m2po = grid(BASE, recipe=["grpo"], lag=[0, 4]), grid(BASE, recipe=["m2po"], lag=[0])
    assert [set(found) for found in groups([*grpo, *m2po])] == [set(grpo), set(m2po)]
    assert len(groups(grpo)) == 1
