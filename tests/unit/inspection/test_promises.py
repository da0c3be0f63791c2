"""What the contract's checks find in objectives with one flaw each, and whose relative an objective is."""

import re

import pytest

from testbed.inspection import promises
from testbed.inspection.relatives import fingerprint, nearest, places

HEAD = "import torch\nfrom testbed.losses.ratios import log_token\n"
LOSS = "-logp_BT * batch.adv_BT"
FLAWED = {
    "reinforce_again": f"return {LOSS}",
    "two_axes": f"B, T = logp_BT.shape\n    return {LOSS}",
    "reads_padding": f"return {LOSS} * batch.logp_mu_BT.sum(-1, keepdim=True)",
    "first_counts_twice": f"""twice = torch.ones_like(logp_BT)
    twice[..., 0, :] = 2.0
    return {LOSS} * twice""",
    "batch_mean": """mean = batch.adv_BT.where(batch.mask_BT, 0.0).sum((-2, -1), keepdim=True)
    return -logp_BT * (batch.adv_BT - 0.01 * mean)""",
    "overflows": "return -log_token(logp_BT, batch).exp() * batch.adv_BT",
    "group_of_one": f"""alike = batch.group_B[..., :, None] == batch.group_B[..., None, :]
    return {LOSS} / (alike.sum(-1) - 1)[..., None]""",
    # In the precision of its input.
    "in_bfloat16": "return -((logp_BT - batch.logp_mu_BT).exp() ** 12) * batch.adv_BT",
    "round_bound": "return -log_token(logp_BT, batch).exp().clamp(max=1.1) * batch.adv_BT",
    "infinite": f"return {LOSS} / 0.0",
    "alike": f"return {LOSS} / (batch.reward_B - batch.reward_B.mean()).abs().sum()",
    "not_a_number_far_below": f"return {LOSS} + 0 * (log_token(logp_BT, batch) + 9000).sqrt()",
    "per_length": f"return {LOSS} / batch.mask_BT.sum(-1, keepdim=True)",
    "half_per_length": "return per_length(logp_BT, batch) / 2",
    "half": f"return {LOSS} / 2",
    "later_less": f"return {LOSS} / (1 + torch.arange(logp_BT.shape[-1]))",
    "turns_round": f"return {LOSS} * (2 - log_token(logp_BT.detach(), batch).exp())",
    "pulled": f"return (logp_BT - batch.logp_ref_BT) ** 2 / 2 + {LOSS}",
}
"""Objective: what it does."""
CAUGHT = {
    "two_axes": "stacked replicas equal separate calls", "reads_padding": "padding does not leak",
    "first_counts_twice": "order of sequences does not matter",
    "batch_mean": "micro-batches give the whole batch's weights", "overflows": "extreme ratios give no NaN",
    "group_of_one": "groups of one and equal rewards are defined", "infinite": "one finite loss per token",
}  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "flawed.py"
    functions = (f"def {name}(logp_BT, batch):\n    {body}\n" for name, body in FLAWED.items())
    path.write_text("\n\n".join([HEAD, *functions]))
    return path


@pytest.mark.parametrize("flaw", CAUGHT)
def test_each_flaw_is_found_by_the_check_that_is_for_it(file, flaw):
    check = promises.CHECKS[CAUGHT[flaw]]
    assert check(f"{file}:reinforce_again") == ""
    if flaw == "two_axes":
        with pytest.raises(ValueError, match="unpack"):  # its own words are the finding
            check(f"{file}:{flaw}")
    else:
        assert check(f"{file}:{flaw}") != ""


SAYS = {
    "infinite": (promises.loss_per_token, "a loss under the mask is not finite"),
    "reads_padding": (promises.nothing_leaks, "weights differ by up to [^0]"),
    "overflows": (promises.extremes_are_numbers, "NaN at a log-ratio of about 10000"),
    "not_a_number_far_below": (promises.extremes_are_numbers, "NaN at a log-ratio of about -10000"),
    "group_of_one": (promises.degenerate_groups_are_defined, "a weight is not finite with groups of one"),
    "alike": (promises.degenerate_groups_are_defined, "a weight is not finite with .*"),
}  # fmt: skip


@pytest.mark.parametrize("flaw", SAYS)
def test_a_check_says_what_it_found(file, flaw):
    check, says = SAYS[flaw]
    assert re.fullmatch(says + ".*", check(f"{file}:{flaw}"))


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("reinforce_again", 1.0),
        ("half", 0.5),
        ("per_length", "1/T"),
        ("half_per_length", None),
        ("later_less", None),
    ],
)
def test_a_share_on_policy_is_one_number_or_one_over_the_length_or_none(file, name, share):
    assert promises.on_policy(f"{file}:{name}") == (pytest.approx(share) if share == 0.5 else share)


def test_signs_and_penalties_are_measured(file):
    assert promises.keeps_sign(f"{file}:half")
    assert not promises.keeps_sign(f"{file}:turns_round")
    assert not promises.weights_without_advantage(f"{file}:half").any()
    assert promises.weights_without_advantage(f"{file}:pulled").any()


def test_a_ratio_in_bfloat16_is_found_and_a_bound_on_a_round_ratio_is_none(file):
    assert promises.low_precision_is_raised(f"{file}:round_bound") == ""
    assert "differ" in promises.low_precision_is_raised(f"{file}:in_bfloat16")


def test_what_is_measured_of_cispo_is_what_it_promises():
    found = promises.measure("cispo")
    assert found.reads == ("mu", "adv")
    assert (found.scope, found.on_policy, found.sign, found.derivative) == (
        "token", pytest.approx(1), True, False,
    )  # fmt: skip
    assert found.bounded
    assert found.largest == pytest.approx(1.28)
    assert not promises.measure("importance_reinforce").bounded


def test_the_same_weights_under_another_name_are_the_nearest_relative(file):
    first, *others = nearest(f"{file}:reinforce_again", ["ppo_clip", "reinforce", "gspo", "dpo"])
    assert (first.name, first.likeness) == ("reinforce", pytest.approx(1.0))
    assert first.mine == pytest.approx(first.theirs)
    assert [each.likeness for each in others] == sorted((e.likeness for e in others), reverse=True)
    assert others[-1].likeness < 0.8


def test_every_number_of_a_fingerprint_has_its_token():
    assert len(places()) == len(fingerprint("reinforce"))
    reinforce = dict(zip(places(), fingerprint("reinforce"), strict=True))
    assert all(f"A = {weight:+g}," in place for place, weight in reinforce.items())
