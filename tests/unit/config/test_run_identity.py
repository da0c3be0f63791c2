"""Equal runs have equal ids, however they are written."""

import pytest

from testbed.config.run import Run, cell_id, grid
from testbed.errors import UserError


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Run(learning_rate=1), Run(learning_rate=1.0)),
        (Run(max_grad_norm=0.0), Run(max_grad_norm=-0.0)),
        (Run(recipe_args=(("a", 1), ("b", 2))), Run(recipe_args=(("b", 2), ("a", 1)))),
        (Run(recipe_args=(("cap", 2.0),)), Run(recipe_args=(("cap", 2),))),
    ],
)
def test_two_ways_of_writing_one_run_give_one_id(one, other):
    assert one == other
    assert cell_id(one) == cell_id(other)


def test_every_field_is_part_of_the_id():
    changed = [
        Run(seed=1),
        Run(lag=1),
        Run(steps=201),
        Run(recipe="m2po"),
        Run(task="chain"),
        Run(log_every=5),
    ]
    assert len({cell_id(run) for run in [Run(), *changed]}) == len(changed) + 1


def test_a_grid_varies_its_last_axis_fastest_and_names_unknown_axes():
    cells = grid(Run(), lag=[0, 4], seed=[0, 1])
    assert [(cell.lag, cell.seed) for cell in cells] == [(0, 0), (0, 1), (4, 0), (4, 1)]
    with pytest.raises(UserError, match="Did you mean 'lag'"):
        grid(Run(), lagg=[0])
