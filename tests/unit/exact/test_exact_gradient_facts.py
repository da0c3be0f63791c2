"""Value, clip share, reference and anchor of exact gradient reports, and the self-normalized objective.

The exact numbers of a report card: free of scale, zero where theory says so, endings in closed form.
"""

import itertools

import numpy as np
import pytest
from support.refusals import refuses

from analysis.cards import objective_facts
from analysis.cards.objective_facts import ending, gradient_facts
from testbed.exact.flows import drift_limit
from testbed.exact.gradient_facts import GradientReport, share
from testbed.exact.gradient_report import Bench, gradient_report
from testbed.exact.group import group_report
from testbed.exact.response_tree import enumerate_leaves, random_policies, random_tree, reward_tree, softmax
from testbed.objectives import objective

TREE = reward_tree([1.0, 0.0, 1.0, 0.0], 2, 2, end_token=1)
MU, PI = random_policies(TREE, 1.2, seed=3)
OTHER, _ = random_policies(TREE, 0.0, seed=8)
LEAVES = enumerate_leaves(TREE)
B = 0.4


SHOWN = (
    "objective", "signal", "baseline", "size", "value", "clip_share", "relative_bias", "cosine", "variance",
    "relative_deviation", "baseline_is_free",
)  # fmt: skip


def responses():
    """(probability under mu, reward, [(state, action), …]) of every response, by its prefixes."""
    for l in range(len(LEAVES.reward_L)):  # noqa: E741
        steps = [
            (s, a)
            for s, a, m in zip(LEAVES.state_LT[l], LEAVES.action_LT[l], LEAVES.mask_LT[l], strict=True)
            if m
        ]
        yield np.prod([MU[step] for step in steps]), LEAVES.reward_L[l], steps


def clipped(adv, anchor=MU):
    """PPO's terms of every response at advantage adv(reward): (probability, values, whether cut)."""
    for mass, reward, steps in responses():
        a = adv(reward)
        u = np.array([PI[step] / anchor[step] for step in steps])
        cut = (u > 1.2) if a > 0 else (u < 0.8)
        yield mass, a * np.where(cut, np.clip(u, 0.8, 1.2), u), cut & (a != 0), a != 0


@pytest.mark.parametrize("anchor", [None, OTHER])
def test_value_and_clip_share_are_sums_over_responses(anchor):
    bench = Bench(TREE, MU, PI, anchor_SA=anchor)
    found = gradient_report("ppo_clip", bench, signal="R-b", baseline=B)
    terms = list(clipped(lambda r: r - B, MU if anchor is None else anchor))
    assert found.value == pytest.approx(sum(mass * value.sum() for mass, value, _, _ in terms), rel=1e-12)
    cut = sum(mass * gone.sum() for mass, _, gone, _ in terms)
    assert found.clip_share == pytest.approx(cut / sum(m * len(v) for m, v, _, _ in terms), rel=1e-12)
    assert 0 < found.clip_share < 1
    row = found.row()
    assert {name: row[name] for name in SHOWN} == {name: getattr(found, name) for name in SHOWN}
    mean = gradient_report("ppo_clip", bench, signal="R-b", baseline=B, aggregation="sequence_mean")
    assert mean.value == pytest.approx(sum(mass * value.mean() for mass, value, _, _ in terms), rel=1e-12)


def test_only_tokens_with_an_advantage_count_in_the_clip_share():
    terms = list(clipped(lambda r: r))
    assert not all(carries for _, _, _, carries in terms)
    carried = sum(mass * len(value) for mass, value, _, carries in terms if carries)
    found = gradient_report("ppo_clip", Bench(TREE, MU, PI))
    assert found.clip_share == pytest.approx(sum(m * gone.sum() for m, _, gone, _ in terms) / carried)
    assert gradient_report("reinforce", Bench(TREE, MU, PI)).clip_share == 0.0


@pytest.mark.parametrize("size", [1, 2])
def test_the_mean_gradient_is_the_slope_of_the_value_in_the_logits_of_pi(size):
    logits = np.log(PI)

    def report(logits_SA, name="gspo"):
        bench = Bench(TREE, MU, softmax(logits_SA), anchor_SA=OTHER)
        given = {"signal": "R-b", "baseline": B}
        if size == 1:
            return gradient_report(name, bench, eps_low=0.9, eps_high=9.0, **given)
        return group_report(name, bench, size=size, eps_low=0.9, eps_high=9.0, **given)

    found, slope = report(logits).mean_SA, np.empty_like(logits)
    for index in np.ndindex(logits.shape):
        nudge = np.zeros_like(logits)
        nudge[index] = 1e-5
        slope[index] = (report(logits + nudge).value - report(logits - nudge).value) / 2e-5
    assert found == pytest.approx(slope, abs=1e-9)
    assert np.abs(found).max() > 0.01


def test_a_groups_value_and_clip_share_are_sums_over_ordered_pairs():
    found = group_report("ppo_clip", Bench(TREE, MU, PI), size=2, advantage="group_mean")
    terms = {adv: list(clipped(lambda r, adv=adv: adv)) for adv in (-0.5, 0.0, 0.5)}
    value, cut, carried = 0.0, 0.0, 0.0
    both = list(responses())
    for (i, first), (j, second) in itertools.product(enumerate(both), repeat=2):
        mass = first[0] * second[0]
        for index, own, other in ((i, first, second), (j, second, first)):
            _, values, gone, carries = terms[(own[1] - other[1]) / 2][index]
            value += mass * values.sum() / 2
            cut += mass * gone.sum()
            carried += mass * len(values) * carries
    assert found.value == pytest.approx(value, rel=1e-12)
    assert found.clip_share == pytest.approx(cut / carried, rel=1e-12)
    named = group_report("ppo_clip", Bench(TREE, MU, PI), size=2, advantage="group_mean", signal="A")
    assert np.array_equal(named.split["suffix"], found.split["suffix"])  # the group's advantage, no signal


@pytest.mark.parametrize(("estimator", "gradient"), [("k2", "pathwise"), ("k1", "score"), ("k3", "both")])
def test_a_kl_penalty_pulls_to_the_reference_that_was_given(estimator, gradient):
    # One token: the score of a token does not see the terms of later ones, so only then it is the KL's slope.
    one = random_tree(3, 1, seed=1)
    pi, ref = (random_policies(one, 0.0, seed)[0] for seed in (1, 2))
    bench = Bench(one, pi, pi, ref_SA=ref)
    found = gradient_report("kl_penalty", bench, estimator=estimator, gradient=gradient)
    logits, slope = np.log(pi), np.empty_like(pi)
    for index in np.ndindex(logits.shape):
        nudge = np.zeros_like(logits)
        nudge[index] = 1e-5
        up, down = (one.divergence(softmax(logits + sign * nudge), ref).kl_pi_mu for sign in (1, -1))
        slope[index] = -(up - down) / 2e-5
    assert found.mean_SA == pytest.approx(slope, abs=1e-9)
    assert not gradient_report("kl_penalty", Bench(one, pi, pi)).mean_SA.any()


def test_references_and_anchors_are_checked_like_policies():
    for name in ("ref", "anchor"):
        refuses(rf"{name} has shape", Bench, TREE, MU, PI, **{f"{name}_SA": MU[:1]})


def pair_gradient(first, second):
    """The gradient of a batch of two with weights 2 w / (w + w'), by its definition."""
    total, weights = np.zeros_like(PI), []
    for _, _, steps in (first, second):
        weights.append(np.prod([PI[step] / MU[step] for step in steps]))
    for weight, (_, reward, steps) in zip(weights, (first, second), strict=True):
        for state, action in steps:
            score = -PI[state]
            score[action] += 1.0
            total[state] += weight / sum(weights) * reward * score
    return total


def test_the_self_normalized_gradient_of_a_pair_is_its_definition():
    found = group_report("self_normalized", Bench(TREE, MU, PI), size=2)
    both = list(responses())
    pairs = [(a[0] * b[0], pair_gradient(a, b)) for a, b in itertools.product(both, repeat=2)]
    mean = sum(mass * gradient for mass, gradient in pairs)
    assert found.mean_SA == pytest.approx(mean, rel=1e-12, abs=1e-15)
    square = sum(mass * float((gradient**2).sum()) for mass, gradient in pairs)
    assert found.variance == pytest.approx(square - float((mean**2).sum()), rel=1e-12)


FACTS_TREE = random_tree(3, 3, 1)


def bench(drift):
    return Bench(FACTS_TREE, *random_policies(FACTS_TREE, drift, 1))


@pytest.mark.parametrize("name", ["reinforce", "ppo_clip", "gspo", "cispo", "tis"])
def test_on_policy_the_direction_is_right_whatever_the_scale(name):
    found = gradient_facts(name, bench(0.0))
    assert found["bias"] == pytest.approx(0.0, abs=1e-9)
    assert found["ess"] == pytest.approx(1.0)
    assert found["noise"] > 1


def test_only_the_ratio_of_the_sequence_keeps_the_direction_off_policy():
    there = bench(0.7)
    assert gradient_facts("ratio:sequence", there)["bias"] == pytest.approx(0.0, abs=1e-9)
    assert gradient_facts("ratio:token", there)["bias"] > 0.05


def test_a_factor_of_the_loss_changes_no_number():
    there, plain = bench(0.5), objective["ppo_clip"].function
    scaled = gradient_facts(lambda logp_BT, batch: 7.0 * plain(logp_BT, batch), there)
    for fact, value in gradient_facts(plain, there).items():
        assert scaled[fact] == pytest.approx(value, rel=1e-9), fact


def test_the_parts_of_the_bias_add_up_to_it():
    found = gradient_facts("cispo", bench(1.0))
    parts = sum(found[f"bias_{part}"] for part in ("state", "suffix", "clipping"))
    assert parts == pytest.approx(found["bias"])
    assert found["bias"] > 0.1


def test_a_gradient_that_is_zero_has_bias_one_and_no_noise():
    found = gradient_facts(lambda logp_BT, batch: 0.0 * logp_BT, bench(0.5))
    assert found["bias"] == pytest.approx(1.0)
    assert np.isnan([found["noise"], found["ess"], found["concentration"]]).all()


def test_a_weight_of_zero_has_no_best_baseline():
    refuses("so no baseline changes the variance", gradient_report, "tba", TREE, MU, MU, signal="R-b")


def test_the_concentration_counts_the_last_batch_in_part():
    law_R, square_R = np.array([0.05, 0.15, 0.8]), np.array([20.0, 4.0, 0.5])
    # The tenth: all of the first, a third of the second.
    expected = (0.05 * 20 + 0.05 * 4) / (1.0 + 0.6 + 0.4)
    assert objective_facts._concentration(law_R, square_R) == pytest.approx(expected)


def test_reinforce_on_frozen_data_ends_where_its_limit_is():
    reward = np.array(objective_facts.BANDIT_REWARD)
    gains = []
    for copies in (objective_facts.BANDIT_COPIES, objective_facts.BANDIT_COPIES[::-1]):
        mu = np.array(copies) / 20
        base = mu @ reward
        gains.append((drift_limit(mu * (reward - base)) @ reward - base) / (1 - base))
    assert gains[0] == pytest.approx((0.8 - 0.37) / 0.63)  # not the best action, but the largest mu A
    assert ending("reinforce", updates=1500).gain == pytest.approx(np.mean(gains), abs=0.01)


def test_a_clip_stops_on_frozen_data_and_the_first_update_gains():
    found = ending("ppo_clip", updates=400)
    assert found.settled
    assert 0.1 < found.gain < 0.3
    assert (found.path_XU[:, 1] > found.path_XU[:, 0]).all()


@pytest.mark.parametrize("factor", [0.0, -1.0], ids=["no gradient", "cloning the data"])
def test_what_has_no_gradient_at_mu_stays_there(factor):
    found = ending(lambda logp_BT, batch: factor * logp_BT, updates=3)
    assert found.gain == pytest.approx(0.0, abs=1e-12)
    assert found.settled


@pytest.mark.slow
def test_an_end_that_hangs_on_the_last_digits_of_mu_is_open_and_another_is_not():
    """RED drops negatives by a key of their log mu: other digits, other negatives."""
    found = ending("red_drop", updates=400)
    assert np.isnan(found.gain)
    assert found.high - found.low > 0.01
    sound = ending("cispo", updates=100)
    assert sound.low == pytest.approx(sound.gain, abs=1e-6)
    assert sound.high == pytest.approx(sound.gain, abs=1e-6)


def vectors(mean, target, variance=4.0, shift=0.0):
    """A report of two logits."""
    mean_SA, target_SA = np.array([mean]), np.array([target])
    split = {"all": mean_SA - target_SA}
    return GradientReport(
        "o", "R", 0.0, 1, mean_SA, target_SA, variance, split, np.array([[shift, 0.0]]), 0.0, 0.0
    )


def test_bias_and_angle_obey_the_law_of_cosines():
    found = vectors([3.0, 4.0], [0.0, 2.0])
    assert found.relative_bias == pytest.approx(np.sqrt(9 + 4) / 2)
    assert found.cosine == pytest.approx(4 / 5)
    assert found.relative_bias**2 == pytest.approx(1 + 2.5**2 - 2 * 2.5 * found.cosine)
    assert found.shares == {"all": pytest.approx(found.relative_bias)}
    assert found.relative_deviation == pytest.approx(1.0)


def test_a_gradient_of_zero_and_a_variance_of_rounding_have_their_limits():
    assert vectors([3.0, 4.0], [0.0, 2.0], variance=-1e-17).relative_deviation == 0
    lost, nothing = vectors([3.0, 4.0], [0.0, 0.0]), vectors([0.0, 0.0], [0.0, 0.0], variance=0.0)
    assert lost.relative_bias == np.inf
    assert lost.relative_deviation > 1e299
    assert (nothing.relative_bias, nothing.relative_deviation, nothing.shares) == (0, 0, {"all": 0})
    assert np.isnan([lost.cosine, nothing.cosine]).all()
    # A baseline is free where its shift is rounding of the gradient, not of 1.
    free = [vectors([0.0, 1.0], [0.0, 1e-6], shift=each).baseline_is_free for each in (0.0, 1e-16, 1e-14)]
    assert free == [True, True, False]
    assert (share(0.0, 0.0), share(1.0, 4.0), share(1.0, -1e-17)) == (0, 0.25, 0)


def test_every_state_has_a_softmax_of_its_own():
    np.testing.assert_array_equal(softmax([[0.0, 0.0], [1000.0, 0.0]]), [[0.5, 0.5], [1.0, 0.0]])
