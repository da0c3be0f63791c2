"""Estimates from the first steps: the start counts once, the steps in proportion."""

from __future__ import annotations

import pytest

from testbed.config.run import Run, grid
from testbed.execution import estimate
from testbed.execution.packs import plan


class Machine:
    """Trains in simulated time: 5 s until the first step, 0.5 s per cell for every later one."""

    def __init__(self, step=0.5):
        self.now, self.step, self.trained = 0.0, step, []

    def train(self, cells, report):
        self.trained.append(0)
        self.now += 5.0
        for done in range(cells[0].steps):
            self.now += self.step * len(cells) if done else 0.0
            self.trained[-1] += 1
            report(done + 1, cells[0].steps)

    def seconds(self, cells, workers=1):
        return estimate.seconds(plan(cells), workers, self.train, lambda: self.now)


def test_the_start_counts_once_and_every_step_in_proportion():
    machine = Machine()
    assert machine.seconds([Run(steps=101)]) == pytest.approx(5 + 100 * 0.5)
    assert machine.trained == [estimate.STEPS]


def test_packs_of_one_kind_are_timed_once_and_shared_by_the_workers():
    cells = grid(Run(steps=11), seed=range(4), prompts=[2, 3])
    machine = Machine()
    assert machine.seconds(cells, workers=2) == pytest.approx(5 + 10 * 4 * 0.5)
    assert len(machine.trained) == 2
    assert Machine().seconds(cells, workers=8) == pytest.approx(25), "a pack is not cut"


def test_slow_steps_are_timed_no_longer_than_they_must_be():
    machine = Machine(step=30.0)
    assert machine.seconds([Run(steps=50)]) == pytest.approx(5 + 49 * 30)
    assert machine.trained == [2]


def test_a_run_of_one_step_has_an_estimate_too():
    assert Machine().seconds([Run(steps=1)]) == pytest.approx(5)
