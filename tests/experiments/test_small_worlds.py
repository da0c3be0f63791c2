"""Harness and worlds of computed experiments: arms tuned in cells, corridors, shares of a split pool."""

import math

import numpy as np
import pandas as pd
import pytest

from analysis.experiments.control import flow_policies, parallel_td3
from analysis.experiments.offline import offline_iql
from analysis.experiments.pairs import equivalent_groups
from analysis.experiments.pipelines import gains_at_scale
from analysis.worlds.offline_worlds import Worlds, random_worlds
from analysis.worlds.pilots import PILOT, TunedArms, tuned
from testbed.pipeline import closed_forms


def test_each_arm_is_tuned_in_each_cell_on_pilot_worlds_alone():
    met = []

    def learn(seeds, arm, size, rate=0.0):
        met.append(seeds)
        return {"score": np.full(len(seeds), -abs(rate - size))}

    arms = TunedArms(
        {"tuned": {"rate": (0.0, 1.0, 2.0, 3.0)}, "fixed": {}}, learn, "score", 2, {"size": (1, 3)}
    )
    frame = pd.concat(arms.rows((7, 8)))
    assert met[0] == (PILOT, PILOT + 1)
    assert list(frame) == ["seed", "size", "arm", "score", "at end"]
    rows = frame[frame["arm"] == "tuned"].set_index(["size", "seed"])
    assert rows["score"].tolist() == [0.0] * 4
    assert rows["at end"].tolist() == [0, 0, 1, 1]  # 3 is the last rate, and 2 is worse


def test_climbing_stops_where_no_step_of_one_knob_is_better_and_says_so_at_an_end():
    tried = []

    def score(x, y):
        tried.append((x, y))
        return -4 * (x - 3) ** 2 - (y - x) ** 2

    grid = {"x": range(8), "y": range(8)}
    assert tuned(score, grid, start={"x": 6, "y": 6}) == tuned(score, grid) == ({"x": 3, "y": 3}, False)
    few = len(tried) - 64
    assert few < 40
    assert len(set(tried[:few])) == few  # none is tried twice
    assert tuned(score, {"x": range(3), "y": range(8)}, start={"x": 0, "y": 0}) == ({"x": 2, "y": 2}, True)


def test_a_corridor_is_gone_through_from_its_fourth_place_and_one_step_falls_short():
    seeds = tuple(range(8))
    plain = random_worlds(seeds, states=8, actions=4)
    worlds = Worlds.of(tuple(offline_iql.corridor(w, s) for w, s in zip(plain.worlds, seeds, strict=True)))
    flat_RSA = np.full_like(plain.best_RSA, 0.25)
    one_step_RSA = np.eye(4)[worlds.q(flat_RSA).argmax(-1)]
    assert worlds.score(one_step_RSA).mean() < 0.9
    going = np.einsum("rsa,rsat->rst", worlds.best_RSA, worlds.moves_RSAS)[
        :, np.arange(3, 7), np.arange(4, 8)
    ]
    assert (going > 0.9).all()


@pytest.mark.parametrize("size", gains_at_scale.SIZES)
def test_the_share_where_both_sides_cross_is_the_best_of_all(size):
    made = gains_at_scale.SIZES[size]
    sheet = gains_at_scale.Sheet.at(gains_at_scale.points(PILOT)[0], (20e-6, 40e-6))
    m = next(sheet.copies(made, 2, 0))
    every = [
        closed_forms.streaming_period(sheet.design(made, m, 2, made.devices * x // 16)) for x in range(2, 15)
    ]
    assert math.isclose(sheet.split(made, m, 2), min(every), rel_tol=1e-12)


def test_groups_of_one_are_pairs_and_a_group_is_pulled_together():
    ratio_RSA = np.random.default_rng(0).normal(size=(1, 1, 4))
    good_RSA, bad_RSA = np.eye(4)[[0]][None], np.eye(4)[[1]][None]
    pairs, groups = (
        equivalent_groups.preferred(arm, ratio_RSA, good_RSA, bad_RSA, 0.7, 0.0)
        for arm in ("tests and pairs", equivalent_groups.GROUPS)
    )
    np.testing.assert_allclose(groups, pairs)
    both_RSA = np.array([[[0.5, 0.0, 0.5, 0.0]]])

    def spread(x_RSA):
        return -0.3 * np.var(x_RSA[..., [0, 2]])

    pulled = equivalent_groups.preferred(
        equivalent_groups.GROUPS, ratio_RSA, both_RSA, 0 * both_RSA, 0.0, 0.3
    )
    steps = 1e-6 * np.eye(4)[:, None, None]
    slope = [(spread(ratio_RSA + h) - spread(ratio_RSA - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(pulled[0, 0], slope, atol=1e-8)


@pytest.mark.parametrize("arm", flow_policies.ARMS)
def test_actions_have_a_ratio_of_one_under_what_drew_them(arm):
    torch = pytest.importorskip("torch")
    policy = flow_policies.Policies(arm, (3, 4), {"noise": 0.2, "pairs": 2})
    state = policy.uniform(flow_policies.BATCH, 2)
    given = policy.given(state, *policy.act(state))
    log, _ = policy.ratios(given)
    assert log.shape[::2] == (2, flow_policies.BATCH)
    assert torch.equal(log, torch.zeros_like(log))
    policy.net[5] = policy.net[5] + 0.1
    assert policy.ratios(given)[0].abs().mean() > 1e-3


def test_projection_keeps_mass_and_mean_of_a_distribution():
    torch = pytest.importorskip("torch")
    support = torch.linspace(-2.0, 3.0, 6, dtype=torch.float64)
    mass = torch.tensor([[0.5, 0.2, 0.0, 0.1, 0.2, 0.0]], dtype=torch.float64)
    moved = (0.3 + 0.9 * support)[None].clamp(-2, 3)
    aim = parallel_td3.projected(mass, moved, support)
    torch.testing.assert_close(aim.sum(-1), mass.sum(-1))
    torch.testing.assert_close((aim * support).sum(-1), (mass * moved).sum(-1))


def test_a_pendulum_stands_where_it_is_held_upright_and_not_where_it_hangs():
    torch = pytest.importorskip("torch")
    for angle, stands in ((0.0, True), (np.pi, False)):
        world = parallel_td3.Pendulum((0, 1), 2, torch.Generator().manual_seed(0))
        world.angle, world.speed = torch.full((2, 2), angle), torch.zeros(2, 2)
        reward, seen = world.step(torch.zeros(2, 2))
        assert seen.shape == (2, 2, 3)
        assert bool((reward > parallel_td3.STANDS).all()) is stands
