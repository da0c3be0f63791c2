"""Value, clip share, reference and anchor of exact gradient reports, and the self-normalized objective."""

import itertools

import numpy as np
import pytest

from testbed.errors import UserError
from testbed.exact.gradient_report import Bench, gradient_report
from testbed.exact.group import group_report
from testbed.exact.tree import enumerate_leaves, random_policies, random_tree, reward_tree, softmax

TREE = reward_tree([1.0, 0.0, 1.0, 0.0], 2, 2, end_token=1)
MU, PI = random_policies(TREE, 1.2, seed=3)
OTHER, _ = random_policies(TREE, 0.0, seed=8)
LEAVES = enumerate_leaves(TREE)
B = 0.4


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
        with pytest.raises(UserError, match=rf"{name} has shape"):
            Bench(TREE, MU, PI, **{f"{name}_SA": MU[:1]})


# Self-normalized weights


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


def test_self_normalized_weights_forget_pi_in_one_response_and_lose_their_bias_with_more():
    bench = Bench(TREE, MU, PI)
    found = [group_report("self_normalized", bench, size=n) for n in (1, 2, 4, 8, 16)]
    assert found[0].mean_SA == pytest.approx(group_report("reinforce", bench, size=1).mean_SA)
    bias = [report.relative_bias for report in found]
    assert bias == sorted(bias, reverse=True)
    assert bias[-1] * 16 == pytest.approx(bias[-2] * 8, rel=0.15)  # of order 1/B
