"""Experiments name the systems that they judge as the list does."""

from __future__ import annotations

from analysis.experiment import EXPERIMENTS
from analysis.systems import systems


def test_there_are_122_systems_numbered_in_order() -> None:
    assert [each.n for each in systems().values()] == list(range(1, 123))


def test_experiments_judge_systems_of_the_list() -> None:
    for name, experiment in EXPERIMENTS.items():
        assert set(experiment.systems) <= set(systems()), f"{name} judges {experiment.systems}"
        assert not experiment.systems or experiment.claims, f"{name} judges systems without a claim"
