"""Worlds by name."""

import pytest

from envs import catalog
from envs.finite_mdp import FiniteMDP

FINITE = [name for name in catalog.worlds() if catalog.kind(name) == "finite-mdp"]


def test_every_world_of_the_issue_is_there():
    expected = {"chain", "grid-world", "garnet", "baird-star", "combination-lock", "bandit", "logged-bandit"}
    tasks = {"running-sum", "copy", "sorted", "length", "reasoning-gym", "jsonl", "three-skills"}
    tasks |= {"guess", "solver-checker", "hinted-sum", "styled-sum", "graded-sum", "stated-sum"}
    assert expected <= set(FINITE)
    assert {name for name in catalog.worlds() if catalog.kind(name) == "token-task"} == tasks


@pytest.mark.parametrize("name", FINITE)
def test_the_name_alone_makes_a_finite_world(name):
    assert isinstance(catalog.make(name), FiniteMDP)


@pytest.mark.parametrize("name", catalog.worlds())
def test_every_world_is_described_in_one_sentence(name):
    line = catalog.describe(name)
    assert line.endswith(".")
    assert 20 < len(line) < 110


def test_worlds_are_sorted_and_cannot_be_changed_through_the_mapping():
    worlds = catalog.worlds()
    assert list(worlds) == sorted(worlds)
    with pytest.raises(TypeError):
        worlds["mine"] = FiniteMDP


def test_a_second_world_of_the_same_name_names_the_first():
    def chain(*, length: int = 2) -> FiniteMDP:
        raise AssertionError("never built")

    with pytest.raises(
        ValueError, match=r"'chain' of .*test_envs_catalog.* already declared by envs\.mdps\.chain"
    ):
        catalog.world("chain")(chain)
    constructor = catalog.worlds()["chain"]
    assert catalog.world("chain")(constructor) is constructor  # a reloaded module declares itself again


def test_arguments_must_be_keywords_with_defaults():
    def positional(length: int = 2) -> FiniteMDP:
        raise AssertionError("never built")

    def without_default(*, length: int) -> FiniteMDP:
        raise AssertionError("never built")

    for constructor in (positional, without_default):
        with pytest.raises(
            ValueError, match="'length' of world 'mine' must be keyword-only and have a default"
        ):
            catalog.world("mine")(constructor)
    assert "mine" not in catalog.worlds()


def test_unknown_names_and_arguments_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"unknown world 'gridworld'. Did you mean 'grid-world'\?"):
        catalog.make("gridworld")
    with pytest.raises(ValueError, match=r"'bandit' takes no argument 'arm'. Did you mean 'arms'\?"):
        catalog.make("bandit", arm=3)
    with pytest.raises(ValueError, match="Known: baird-star, bandit"):
        catalog.describe("zzz")
