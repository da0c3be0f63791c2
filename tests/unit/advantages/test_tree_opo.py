"""Tree-OPO's projection: its closed form, its optimality, and what a tree may look like."""

import numpy as np
import pytest
import torch
from support.refusals import refuses

from testbed.advantages import advantage
from testbed.advantages.tree_opo import ordered, project
from testbed.data.signals import Signals

TREE_DRAWS = np.random.default_rng(23)


def tree(reward, parent, group=None, **hyper):
    group = torch.zeros(len(reward), dtype=torch.int64) if group is None else torch.tensor(group)
    signals = Signals(torch.tensor(reward, dtype=torch.float64), group, parent_B=torch.tensor(parent))
    return advantage["tree_opo"].bind(**hyper)(signals).numpy()


@pytest.mark.parametrize("gap", [0.001, 0.009, 0.011, 0.3])
def test_two_responses_have_a_closed_form(gap):
    # Half of max(gap, delta) on either side.
    half = max(gap, 0.01) / 2
    np.testing.assert_allclose(tree([0.5 - gap / 2, 0.5 + gap / 2], [-1, 0]), [-half, half], atol=1e-12)


def test_with_rewards_zero_and_one_it_is_the_group_mean():
    reward, parent = (
        TREE_DRAWS.integers(0, 2, 12).astype(float),
        [-1, *(int(TREE_DRAWS.integers(0, i)) for i in range(1, 12))],
    )
    np.testing.assert_allclose(tree(reward, parent), reward - reward.mean(), atol=1e-14)


def test_it_follows_prefixes_over_several_steps_but_not_across_groups():
    # 0 <- 1 <- 2: only (0, 2) is a failed ancestor with a successful descendant that is too near.
    np.testing.assert_allclose(tree([0.499, 0.6, 0.5], [-1, 0, 1])[[0, 2]] @ [-1, 1], 0.01, atol=1e-12)
    apart = tree([0.499, 0.6, 0.5, 0.1], [-1, 0, 1, -1], group=[0, 1, 1, 0])
    np.testing.assert_allclose(apart, [0.1995, 0.05, -0.05, -0.1995], atol=1e-12)


def test_only_failures_are_held_below_successes():
    for reward in ([0.6, 0.605], [0.4, 0.405], [0.505, 0.495]):
        np.testing.assert_allclose(tree(reward, [-1, 0]), np.array(reward) - np.mean(reward), atol=1e-14)
    assert tree([0.6, 0.605], [-1, 0], success=0.603)[1] == pytest.approx(0.005, abs=1e-12)


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_no_allowed_point_is_nearer(scale):
    # Optimal in a convex set: (c - a) (z - a) <= 0 for every allowed z. At scale 8 the ball binds.
    count, delta = 6, 0.8
    pairs = np.array([[0, 3], [0, 4], [1, 4], [2, 5]])
    for _ in range(20):
        center = TREE_DRAWS.normal(size=count) * scale
        center -= center.mean()
        found = project(center, pairs, delta)
        assert abs(found.sum()) < 1e-9
        assert found @ found <= count + 1e-9
        assert (found[pairs[:, 1]] - found[pairs[:, 0]] >= delta - 1e-9).all()
        for _ in range(50):
            other = TREE_DRAWS.normal(size=count)
            other = ordered(other - other.mean(), pairs, delta)
            nearest = ordered(np.zeros(count), pairs, delta)
            while other @ other > count:
                other = nearest + 0.8 * (other - nearest)
            assert (center - found) @ (other - found) <= 1e-8


def test_a_long_advantage_is_shortened_to_the_ball():
    found = tree([0.0, 0.0, 10.0], [-1, -1, -1])
    np.testing.assert_allclose(found, np.array([-1, -1, 2]) / np.sqrt(2), atol=1e-9)


@pytest.mark.parametrize("parent", [[1, 0, -1], [0, -1, -1], [-1, 3, -1], [1, 2, 0]])
def test_what_is_not_a_forest_is_refused(parent):
    refuses("not a forest", tree, [0.0, 1.0, 0.0], parent)


def test_a_margin_that_cannot_be_kept_is_refused():
    refuses("lower delta", tree, [0.0, 1.0], [-1, 0], delta=5.0)
