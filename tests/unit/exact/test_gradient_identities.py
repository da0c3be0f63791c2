"""What algebra makes true of gradients from off-policy data, on trees whose every response is enumerated."""

import numpy as np
import pytest

from testbed.exact.gradient_report import Bench, gradient_report
from testbed.exact.group import group_report
from testbed.exact.response_tree import random_policies, random_tree, reward_tree

CLEARLY = 0.01
"""A bias of more than 1 % of the gradient's norm."""
UNBIASED = {("sequence", "R"), ("sequence", "A"), ("prefix", "A")}
CLIPPED = {"ppo_clip": {}, "tis": {"cap": 1.2}, "importance_reinforce": {"cap": 1.2}, "cispo": {}}
LEVELS = ("none", "token", "prefix", "suffix", "sequence", "min_prefix", "geometric")


def random_bench(seed, length=3, drift=0.5):
    tree = random_tree(3, length, seed)
    return Bench(tree, *random_policies(tree, drift, seed))


@pytest.mark.parametrize(
    ("level", "first", "second"),
    [("none", 3 / 32, 3 / 32), ("token", 3 / 16, 1 / 16), ("prefix", 3 / 16, 1 / 8),
     ("min_prefix", 3 / 16, 1 / 8), ("suffix", 1 / 8, 1 / 16), ("sequence", 1 / 8, 1 / 8),
     ("geometric", 3**0.5 / 16, 3**0.5 / 16)],
)  # fmt: skip
def test_on_two_tokens_with_gradient_an_eighth_the_ratios_have_these_means(level, first, second):
    mu_SA = np.array([[0.75, 0.25], [0.25, 0.75], [0.25, 0.75]])
    bench = Bench(reward_tree([0.0, 0.0, 0.0, 1.0], 2, 2), mu_SA, np.full((3, 2), 0.5))
    assert bench.target_SA[[0, 2], 1] == pytest.approx([1 / 8, 1 / 8])
    assert gradient_report(f"ratio:{level}", bench).mean_SA[[0, 2], 1] == pytest.approx([first, second])


@pytest.mark.parametrize("signal", ["R", "A"])
@pytest.mark.parametrize("level", LEVELS)
def test_of_ratios_and_signals_three_pairs_alone_are_unbiased(level, signal):
    for seed in range(3):
        bias = gradient_report(f"ratio:{level}", random_bench(seed), signal=signal).relative_bias
        assert bias < 1e-11 if (level, signal) in UNBIASED else bias > CLEARLY


def test_a_baseline_is_free_under_plain_ratios_and_moves_the_mean_under_clipped_ones():
    plain = {f"ratio:{level}": {} for level in ("token", "prefix", "suffix", "sequence")}
    bench = random_bench(0)
    for name, hyper in (plain | CLIPPED).items():
        moved, still = (
            gradient_report(name, bench, signal=signal, baseline=0.5, **hyper) for signal in ("R-b", "R")
        )
        shift = np.linalg.norm(moved.mean_SA - still.mean_SA) / np.linalg.norm(bench.target_SA)
        assert moved.baseline_is_free is (name in plain)
        assert shift < 1e-11 if name in plain else shift > CLEARLY, name


@pytest.mark.parametrize("drift", [0.0, 0.5])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_groups_own_mean_shrinks_the_gradient_and_its_deviation_bends_it(size, drift):
    tree = random_tree(2, 3, 1)
    bench = Bench(tree, *random_policies(tree, drift, 1))
    shrunk, exact, bent = (
        group_report("ratio:sequence", bench, size=size, advantage=name)
        for name in ("group_mean", "leave_one_out", "group_std")
    )
    np.testing.assert_allclose(shrunk.mean_SA, (1 - 1 / size) * bench.target_SA, atol=1e-12)
    assert exact.relative_bias < 1e-11
    assert bent.relative_bias > CLEARLY
