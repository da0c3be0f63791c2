"""Harness and worlds of computed experiments: what they compute, on what can be said otherwise."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from support.refusals import refuses

from analysis.experiments.control import flow_policies, parallel_td3
from analysis.experiments.engines import draft_states
from analysis.experiments.engines.draft_states import acceptance, accepted_length
from analysis.experiments.experts import searched_sinusoid
from analysis.experiments.experts.expert_mixtures import alignment
from analysis.experiments.offline import offline_iql
from analysis.experiments.pairs import equivalent_groups
from analysis.experiments.pipelines import gains_at_scale
from analysis.experiments.rewards import parallel_decoding
from analysis.experiments.teachers import private_networks as private
from analysis.worlds.long_answers import EGAE, LONGEST, SLOTS, WHOLE, ticks
from analysis.worlds.offline_worlds import Worlds, random_worlds
from analysis.worlds.pilots import PILOT, TunedArms, tuned
from testbed.advantages.shaped import shaped_std
from testbed.data.signals import Signals
from testbed.objectives.terms.f_distillation import f_distillation
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


def test_of_several_climbs_the_highest_top_is_taken():
    heights = (3.0, 1.0, 0.0, 4.0, 9.0, 2.0)
    far, near = {"x": 5}, {"x": 1}
    assert tuned(lambda x: heights[x], {"x": range(6)}, start=near) == ({"x": 0}, False)  # 0 has no end
    assert tuned(lambda x: heights[x], {"x": range(6)}, start=[near, far]) == ({"x": 4}, False)


def test_a_corridor_is_gone_through_from_its_fourth_place_and_one_step_falls_short():
    seeds = tuple(range(8))
    plain = random_worlds(seeds, states=8, actions=4)
    worlds = Worlds.of(tuple(offline_iql.corridor(w, s) for w, s in zip(plain.worlds, seeds, strict=True)))
    flat_RSA = np.full_like(plain.best_RSA, 0.25)
    one_step_RSA = np.eye(4)[worlds.q(flat_RSA).argmax(-1)]
    assert worlds.score(one_step_RSA).mean() < 0.9
    going = np.einsum("rsa,rsat->rst", worlds.best_RSA, worlds.moves_RSAS)[:, range(3, 7), range(4, 8)]
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

    pulled = equivalent_groups.preferred(equivalent_groups.GROUPS, ratio_RSA, both_RSA, 0 * both_RSA, 0, 0.3)
    steps = 1e-6 * np.eye(4)[:, None, None]
    slope = [(spread(ratio_RSA + h) - spread(ratio_RSA - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(pulled[0, 0], slope, atol=1e-8)


@pytest.mark.parametrize("arm", flow_policies.ARMS)
def test_actions_have_a_ratio_of_one_under_what_drew_them(arm):
    policy = flow_policies.Policies(arm, (3, 4), {"noise": 0.2, "pairs": 2})
    state = policy.uniform(flow_policies.BATCH, 2)
    given = policy.given(state, *policy.act(state))
    log, _ = policy.ratios(given)
    assert log.shape[::2] == (2, flow_policies.BATCH)
    assert torch.equal(log, torch.zeros_like(log))
    policy.net[5] = policy.net[5] + 0.1
    assert policy.ratios(given)[0].abs().mean() > 1e-3


def test_projection_keeps_mass_and_mean_of_a_distribution():
    support = torch.linspace(-2.0, 3.0, 6, dtype=torch.float64)
    mass = torch.tensor([[0.5, 0.2, 0.0, 0.1, 0.2, 0.0]], dtype=torch.float64)
    moved = (0.3 + 0.9 * support)[None].clamp(-2, 3)
    aim = parallel_td3.projected(mass, moved, support)
    torch.testing.assert_close(aim.sum(-1), mass.sum(-1))
    torch.testing.assert_close((aim * support).sum(-1), (mass * moved).sum(-1))


def test_a_pendulum_stands_where_it_is_held_upright_and_not_where_it_hangs():
    for angle, stands in ((0.0, True), (np.pi, False)):
        world = parallel_td3.Pendulum((0, 1), 2, torch.Generator().manual_seed(0))
        world.angle, world.speed = torch.full((2, 2), angle), torch.zeros(2, 2)
        reward, seen = world.step(torch.zeros(2, 2))
        assert seen.shape == (2, 2, 3)
        assert bool((reward > parallel_td3.STANDS).all()) is stands


def test_a_response_gets_minus_the_slope_of_the_mean_loss_over_pairs():
    logp = torch.tensor([-1.0, -0.3, -2.0, -0.7, -1.5], dtype=torch.float64, requires_grad=True)
    won = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    loss = -torch.nn.functional.logsigmoid(0.7 * (logp[won > 0][:, None] - logp[won == 0])).mean()
    (slope,) = torch.autograd.grad(loss, logp)
    torch.testing.assert_close(alignment(logp.detach(), won, 0.7), -slope)


def test_groups_without_a_success_or_a_failure_get_nothing():
    logp = torch.zeros(2, 4, dtype=torch.float64)
    assert (alignment(logp, torch.tensor([[0.0] * 4, [1.0] * 4])) == 0).all()


@pytest.mark.parametrize(("amplitude", "frequency"), [(0.0, 0.4), (1.2, 0.4), (2.0, 0.3)])
def test_a_sinusoids_value_is_the_sum_of_its_costs(monkeypatch, amplitude, frequency):
    for name, only in (("AMPLITUDES", [amplitude]), ("FREQUENCIES", (frequency,)), ("PHASES", 1)):
        monkeypatch.setattr(searched_sinusoid, name, only)
    world = searched_sinusoid.wake()
    # Means are linear in where the wake starts, which has unit variance in both directions.
    mean_D2, spread_DD, total = np.eye(4)[:, 2:], np.diag([0.1, 0.1, 0.0, 0.0]), 0.0
    for t in range(600):
        angle = frequency * t
        force_12 = amplitude * np.array([[np.cos(angle), np.sin(angle)]])
        second_DD = mean_D2 @ mean_D2.T + spread_DD
        total -= 0.95**t * (
            float((world.state_cost_DD * second_DD).sum()) + 0.05 * float((force_12**2).sum())
        )
        mean_D2 = world.a_DD @ mean_D2 + world.b_DU @ force_12
        spread_DD = world.a_DD @ spread_DD @ world.a_DD.T + 0.1**2 * np.eye(4)
    assert searched_sinusoid.best_sinusoid(world) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize(("sigma", "share", "order"), [(1.0, 0.1, 2), (2.0, 0.25, 5), (1.03, 1 / 64, 8)])
def test_the_divergence_of_a_noisy_sampled_step_is_the_integral_that_defines_it(sigma, share, order):
    x_X = np.linspace(-60.0, 60.0, 240_001)
    plain_X = np.exp(-(x_X**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
    ratio_X = 1 - share + share * np.exp((2 * x_X - 1) / (2 * sigma**2))
    integral = (plain_X * ratio_X**order).sum() * (x_X[1] - x_X[0])
    assert private.divergence(sigma, share, order) == pytest.approx(math.log(integral) / (order - 1), 1e-9)


def test_the_noise_spends_all_of_epsilon_and_no_more():
    assert private.EPSILON - 1e-4 < private.spent(private.multiplier()) <= private.EPSILON


def test_no_record_moves_the_sum_by_more_than_the_clip_and_short_gradients_stay():
    gradient_RBP = torch.tensor([[[0.01]], [[3.0]]]) * torch.randn(2, 9, 30, generator=torch.manual_seed(5))
    found = private.clipped(gradient_RBP)
    assert found.norm(dim=-1).max() <= private.CLIP * (1 + 1e-6)
    torch.testing.assert_close(found[0], gradient_RBP[0])


def test_a_record_s_gradient_is_that_of_its_own_loss():
    task, policy = private.built(8)
    theta_RP, teacher_RP = policy.initial([1]), private.built(24)[1].initial([1])
    prompt = torch.from_numpy(task.prompts(np.random.default_rng(2), 3))[None]
    token = torch.randint(0, 6, (1, 3, private.DIGITS), generator=torch.manual_seed(3))
    each = private.record_gradients(theta_RP, teacher_RP, prompt, token, "data")
    leaf = theta_RP.clone().requires_grad_()
    loss = -policy.logp(leaf, prompt, token, torch.ones_like(token, dtype=torch.bool)).mean(-1).sum()
    torch.testing.assert_close(each.sum(1), torch.autograd.grad(loss, leaf)[0], rtol=1e-4, atol=1e-5)


def test_a_draft_of_another_vocabulary_is_refused_and_a_perfect_one_accepted_whole():
    law = np.full((1, 4), 0.25)
    assert accepted_length([law, np.tile(law, (4, 1))], [law, np.tile(law, (4, 1))]) == pytest.approx(2)
    refuses("another vocabulary", accepted_length, [law], [np.full((1, 3), 1 / 3)])


def test_a_draft_is_accepted_but_for_its_total_variation():
    target, draft = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3))
    assert acceptance(target, draft) == pytest.approx(1 - np.abs(target - draft).sum(-1) / 2)


def test_a_target_writes_the_prefixes_of_each_length_with_its_own_chances():
    target = torch.zeros(85, 4, dtype=torch.float64)
    target[0, 1] = 3.0
    share_S = draft_states.prefixes(target)
    torch.testing.assert_close(share_S[1:5], target[0].softmax(-1))
    torch.testing.assert_close(share_S[5:21].view(4, 4).sum(1), target[0].softmax(-1))


@pytest.mark.parametrize(
    ("call", "message"),
    [(lambda s: f_distillation(s, None, divergence="chi2"), "chi2"),
     (lambda s: f_distillation(s, None, divergence="js", beta=1.0), "beta"),
     (lambda s: shaped_std(Signals(s[:, 0], torch.zeros(2, dtype=torch.int64)), above=0.0), "positive")],
)  # fmt: skip
def test_impossible_settings_are_refused(call, message):
    refuses(message, call, torch.zeros(2, 1))


@pytest.mark.slow
def test_the_longest_windows_are_whole_answers_short_ones_do_not_wait_and_a_clock_stops_at_its_end():
    whole = ticks(3, WHOLE, 30.0, 0.9, SLOTS, 0.5, 5000.0)
    assert ticks(3, EGAE, 30.0, 0.9, LONGEST, 0.5, 5000.0) == whole < 5000
    assert ticks(3, EGAE, 30.0, 0.9, 16, 0.5, 5000.0) < 0.75 * whole
    assert ticks(3, WHOLE, 0.0, 0.9, SLOTS, 0.5, 200.0) == 200.0


def test_accuracy_under_parallelism_is_an_area_and_leaves_out_what_is_much_worse():
    area = parallel_decoding.under_parallelism
    assert math.isclose(area(np.array([1.0, 3.0]), np.array([1.0, 1.0])), 3.0)
    assert math.isclose(area(np.array([3.0, 1.0]), np.array([0.9, 1.0])), 1.0)
    worth = 0.96 * math.exp(-0.12)
    assert math.isclose(area(np.array([1.0, 2.0]), np.array([1.0, 0.96])), 1 + (1 + worth) / 2)


def test_decoupled_advantages_do_not_depend_on_the_scale_of_a_reward():
    right = torch.tensor([[[1.0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]]])
    speed = torch.tensor([[[1.0, 2, 2, 1], [1, 2, 1, 2], [1.5, 1.5, 1.5, 1.5]]])
    gain, kept = parallel_decoding.advantages(right, speed, 0.5, lightning=True)
    again, _ = parallel_decoding.advantages(right, 10 * speed, 0.5, lightning=True)
    torch.testing.assert_close(gain, again)
    assert kept[0].tolist() == [[0.25] * 4, [0.0] * 4, [0.0] * 4]  # none right, and all equally fast
    joint, _ = parallel_decoding.advantages(right, speed, 0.5, lightning=False)
    torch.testing.assert_close(joint[0, 0], torch.tensor([1.0, -1, 3, -3]) / 5**0.5)
