"""Batches by hand: their tensors, the three layouts they are passed in, and what a call returns."""

import math
import random

import pytest
import torch
from support.refusals import refuses

from testbed.conformance import calling
from testbed.conformance.batches import (
    Row,
    Token,
    calm,
    collapsed,
    in_words,
    joined,
    random_rows,
    stack,
    tensors,
)
from testbed.conformance.calling import LossError, call, passed, reaches_old
from testbed.conformance.layouts import call_arguments, in_rows, laid_out, logits_of, present
from testbed.conformance.signature import Binding, bind
from testbed.conformance.strategies import batches, smallest

ROWS = (
    Row((Token(0.5, 0.25, -0.125), Token(9.0, 9.0, 9.0, kept=False), Token(-1.0)), 2.0, 0.5, group=7),
    Row((Token(-1.0, -0.5), Token(0.25, 0.0, 1.0)), -1.0, 1.0, group=3),
)
"""Columns: the second token of the first row is a tool's, the second row is shorter."""


def made(function, **roles):
    layout = roles.pop("layout", "padded")
    return Binding(function, "mine", roles, layout=layout)


def test_log_probabilities_are_at_most_zero_and_differ_as_the_tokens_say():
    logp, batch = tensors(ROWS, width=4, garbage=-4.0)
    # -.125 - .5 (t mod 3) - .25 (b mod 2) less the largest of 0, pi, mu and ref: none is positive.
    assert logp.tolist() == [[-0.25, -4.0, -2.125, -4.0], [-1.875, -0.875, -4.0, -4.0]]
    assert batch.logp_anchor_BT.tolist() == [[-0.75, -2.0, -1.125, -2.0], [-0.875, -1.125, -2.0, -2.0]]
    assert batch.logp_mu_BT.tolist() == [[-1.0, -2.0, -1.125, -2.0], [-0.375, -1.125, -2.0, -2.0]]
    assert batch.logp_ref_BT.tolist() == [[-0.125, -2.0, -2.125, -2.0], [-1.875, -1.875, -2.0, -2.0]]
    assert batch.mask_BT.tolist() == [[True, False, True, False], [True, True, False, False]]
    assert batch.adv_BT.tolist() == [[2.0] * 4, [-1.0] * 4]
    assert (batch.reward_B.tolist(), batch.group_B.tolist()) == ([0.5, 1.0], [0, 1])
    coarse, half = tensors((Row((Token(0.3),), adv=0.3, reward=0.3),), dtype=torch.bfloat16)
    assert (coarse.shape, coarse.dtype, half.reward_B.item()) == ((1, 1), torch.float64, 0.30078125)
    both = joined([batch, batch])
    assert (both.mask_BT.shape, both.reward_B.tolist()) == ((2, 2, 4), [[0.5, 1.0]] * 2)


def test_random_rows_have_holes_signs_groups_and_the_spread_asked_for():
    rows = random_rows(random.Random(0), 400, 9, scale=2.0, holes=0.3)
    assert (len(rows), len(rows[0].tokens)) == (400, 9)
    assert {len(row.tokens) for row in rows} == set(range(1, 10))
    assert [row.group for row in rows[:7]] == [0, 0, 0, 1, 1, 2, 2]
    assert all(row.tokens[0].kept for row in rows)
    later = [token.kept for row in rows for token in row.tokens[1:]]
    assert sum(later) / len(later) == pytest.approx(0.7, abs=0.04)
    assert rows[4].adv == 0.0
    advs = [row.adv for row in rows if row is not rows[4]]
    assert 0.25 <= min(map(abs, advs)) < 0.3 < 1.2 < max(map(abs, advs)) <= 1.25
    assert 0.4 < sum(adv > 0 for adv in advs) / len(advs) < 0.6
    assert all(-1 <= row.reward <= 1 for row in rows)
    assert 0.3 < sum(row.reward < 0 for row in rows) / len(rows) < 0.7
    tokens = [token for row in rows for token in row.tokens]

    def spread(name):
        return torch.tensor([getattr(token, name) for token in tokens]).std().item()

    # Of 2,000 tokens: a standard error of .016 of the size.
    assert spread("log_ratio") == pytest.approx(2.0, rel=0.08)
    assert spread("log_mismatch") == pytest.approx(0.5, rel=0.08)
    assert spread("log_ref") == pytest.approx(0.8, rel=0.08)
    assert all(token.log_ref == 0 for row in random_rows(random.Random(0), ref=0.0) for token in row.tokens)
    assert {len(each) for each in (*stack(), *calm())} == {6}
    assert {token.log_ratio for rows in calm() for row in rows for token in row.tokens} == {0.0}
    assert stack(1) != stack(2) != stack(0) == stack()


def test_one_old_log_probability_has_no_mismatch_and_words_leave_out_what_is_one():
    alike = collapsed(ROWS)
    assert [token.log_mismatch for row in alike for token in row.tokens] == [0.0] * 5
    assert alike[0].tokens[0] == Token(0.5, 0.0, -0.125)
    assert (alike[1].adv, alike[1].group, alike[0].tokens[1].kept) == (-1.0, 3, False)
    far = Row((Token(60.0), Token(kept=False), Token(-60.0))), Row((Token(0.0, 0.0, -49.0),), -0.5)
    all_ = Row((Token(0.0, 0.5, 0.1), Token(kept=False), Token(1.0)))
    said = ["A = +1, pi/anchor = (e^60, -, e^-60)", "A = -0.5, pi/anchor = (1), pi/ref = (5.24289e-22)"]
    more = "A = +1, pi/anchor = (1, -, 2.71828), anchor/mu = (1.64872, -, 1), pi/ref = (1.10517, -, 1)"
    assert in_words([*far, all_]) == [*said, more]


def test_a_search_for_a_batch_returns_the_simplest_of_those_it_may_draw():
    found = smallest(batches(), lambda rows: len(rows) > 1 and rows[1].adv < 0, 20)
    assert found == (Row((Token(),), 1.0), Row((Token(),), -1.0))
    holes = batches(log_ratios=(0.777,), holes=True, longest=2)
    held = smallest(holes, lambda rows: any(t.log_ratio == 0.777 and not t.kept for t in rows[0].tokens), 60)
    assert sorted(token.kept for token in held[0].tokens) == [False, True]

    for low, high in ((0.3, 0.4), (1.75, 1.99), (-2.0, -1.5)):  # where no ratio that is easy to read lies
        assert smallest(batches(), lambda rows: low < rows[0].tokens[0].log_ratio < high, 3000)  # noqa: B023

    def beyond(rows):
        tokens = [token for row in rows for token in row.tokens]
        odd = any(token.log_mismatch or not token.kept or abs(token.log_ratio) > 2.31 for token in tokens)
        return odd or not 2 <= len(rows) <= 3 or any(len(row.tokens) > 2 or row.group > 1 for row in rows)

    assert smallest(batches(mismatch=False, rows=(2, 3), longest=2, groups=2), beyond, examples=20) is None


MASK = torch.tensor([[True, True, False, False], [True, False, True, False]])
LOGP = -torch.arange(1.0, 9.0, dtype=torch.float64).reshape(2, 4)


def arguments(binding, totals=None, dtype=torch.float64):
    logp, batch = tensors(
        (Row((Token(),) * 2, 2.0), Row((Token(), Token(kept=False), Token()), -1.0, 0.5, 1)), 4
    )
    assert torch.equal(batch.mask_BT, MASK)
    return call_arguments(binding, logp - 0.5, batch, dtype, totals), batch


def test_one_packed_row_ends_each_response_at_its_last_kept_token():
    roles = {"p": "logp", "a": "adv", "m": "mask", "l": "labels", "s": "segments", "i": "positions"}
    binding = made(None, layout="packed", **roles, o="offsets", r="reward", g="group")
    found, batch = arguments(binding)
    assert torch.equal(present(MASK), torch.tensor([[True, True, False, False], [True, True, True, False]]))
    assert torch.equal(found["p"], (batch.logp_anchor_BT - 0.5)[present(MASK)][None])
    assert found["a"].tolist() == [[2.0, 2.0, -1.0, -1.0, -1.0]]
    assert found["m"].tolist() == [[1.0, 1.0, 1.0, 0.0, 1.0]]
    assert found["l"].tolist() == [[0, 1, 1, 2, 0]]
    assert found["s"].tolist() == [[0, 0, 1, 1, 1]]
    assert found["i"].tolist() == [[0, 1, 0, 1, 2]]
    assert (found["o"].tolist(), found["o"].dtype) == ([0, 2, 5], torch.int32)
    assert (found["r"].tolist(), found["g"].tolist()) == ([0.0, 0.5], [0, 1])
    flat = Binding(None, "mine", {**roles, "o": "offsets"}, {"c": 3}, "packed", False, False, "bool")
    found, _ = arguments(flat, dtype=torch.float32)
    assert (found["p"].shape, found["p"].dtype, found["c"]) == ((5,), torch.float32, 3)
    assert (found["a"].tolist(), found["m"].dtype) == ([2.0, -1.0], torch.bool)
    assert found["s"].tolist() == [0, 0, 1, 1, 1]


def test_lists_and_padded_rows_hold_the_same_numbers_and_totals_may_be_those_of_a_larger_batch():
    found, batch = arguments(made(None, layout="lists", p="logp", a="adv", n="tokens", q="sequences"))
    policy = batch.logp_anchor_BT - 0.5
    assert [each.tolist() for each in found["p"]] == [policy[0, :2].tolist(), policy[1, :3].tolist()]
    assert [len(each) for each in found["a"]] == [2, 3]
    assert (found["n"].item(), found["q"].item()) == (4, 2)
    padded = made(None, p="logp", k="old", u="mu", f="ref", n="tokens", q="sequences", b="batch")
    found, batch = arguments(padded, totals=(9, 7))
    assert torch.equal(found["p"], batch.logp_anchor_BT - 0.5)
    assert torch.equal(found["k"], batch.logp_anchor_BT)
    assert torch.equal(found["u"], batch.logp_mu_BT)
    assert torch.equal(found["f"], batch.logp_ref_BT)
    assert (found["n"].item(), found["q"].item(), found["b"]) == (9, 7, batch)


@pytest.mark.parametrize("layout", ["padded", "packed", "lists"])
def test_a_number_per_token_comes_back_to_its_place(layout):
    binding = made(None, layout=layout)
    there = present(MASK)
    found = in_rows(laid_out(LOGP, there, binding), there, binding)
    expected = LOGP if layout == "padded" else torch.where(there, LOGP, 0.0)
    assert torch.equal(found, expected)
    wrong = {"padded": LOGP[:, :3], "packed": LOGP[0], "lists": [LOGP[0], LOGP[1]]}[layout]
    assert in_rows(wrong, there, binding) is None


def test_logits_give_their_labels_the_log_probabilities_and_need_a_softmax():
    labels = torch.tensor([[0, 1, 2, 0], [2, 1, 0, 0]])
    logits = logits_of(LOGP, labels)
    assert logits.shape == (2, 4, 3)
    picked = logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    torch.testing.assert_close(picked, LOGP)
    assert logits.logsumexp(-1)[0].tolist() == pytest.approx([-0.5, -1 / 6, 1 / 6, 0.5])
    assert bool(logits_of(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.int64)).isfinite().all())


def reinforce(p, a, m):
    return -(p * a * m)


FORMS = {
    "scalar": lambda p, a, m: reinforce(p, a, m).sum(),
    "scalar of one number": lambda p, a, m: reinforce(p, a, m).sum()[None],
    "tokens": lambda p, a, m: reinforce(p, a, 1.0),
    "rows": lambda p, a, m: reinforce(p, a, m).sum(-1),
    "tokens with others": lambda p, a, m: (reinforce(p, a, 1.0), 2 * p),
    "scalar with metrics": lambda p, a, m: (reinforce(p, a, m).sum(), {"loss": 3}),
    "scalar in a dict": lambda p, a, m: {"other": 1, "loss": reinforce(p, a, m).sum()},
    "scalar of an object": lambda p, a, m: type("Out", (), {"loss": reinforce(p, a, m).sum()}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_loss_may_return_a_number_one_per_token_or_one_per_response(form, monkeypatch):
    heard = []
    monkeypatch.setattr(calling, "announce", [heard.append])
    logp, batch = tensors(ROWS, 4)
    binding = made(FORMS[form], p="logp", a="adv", m="mask")
    found = call(binding, logp, batch, torch.float32)
    assert found.form == form.partition(" ")[0]
    assert found.weight_BT.tolist() == [[2.0, 0.0, 2.0, 0.0], [-1.0, -1.0, 0.0, 0.0]]
    assert found.value == pytest.approx(-2 * (-0.25 - 2.125) + (-1.875 - 0.875))
    assert (found.dtype, found.weight_BT.dtype, found.changed) == (torch.float32, torch.float64, ())
    assert heard == ["p float32 [2, 4], a float32 [2, 4], m float32 [2, 4]", ""]


def test_a_list_of_rows_is_a_number_per_token():
    binding = made(
        lambda p, a: [-x * y for x, y in zip(p, a, strict=True)], layout="lists", p="logp", a="adv"
    )
    found = call(binding, *tensors(ROWS, 4))
    assert found.form == "tokens"
    assert found.weight_BT.tolist() == [[2.0, 0.0, 2.0, 0.0], [-1.0, -1.0, 0.0, 0.0]]
    one = made(lambda p: -p, p="logp")
    assert call(one, *tensors((Row((Token(),)),))).form == "tokens", "a batch of one token"
    given = {"p": [torch.zeros(3), torch.zeros(2)], "b": tensors(ROWS, 4)[1], "n": [1], "e": 0.2}
    words = "p list of 2 float32 tensors of lengths [3, 2], b Batch of [2, 4], n [1], e 0.2"
    assert passed(given) == words


def test_what_a_call_changes_is_named_and_the_caller_keeps_its_numbers():
    def careless(p, a, m, b, later):
        a.mul_(2)
        b.reward_B[0] = 9.0
        later.append(1)
        return -(p * m).sum()

    binding = Binding(careless, "mine", {"p": "logp", "a": "adv", "m": "mask", "b": "batch"}, {"later": [3]})
    logp, batch = tensors(ROWS)
    found = call(binding, logp, batch)
    assert found.changed == ("a", "b.reward_B", "later")
    assert (batch.adv_BT[0, 0].item(), batch.reward_B[0].item()) == (2.0, 0.5)


def test_a_ratio_leads_back_to_old_log_probabilities_unless_they_are_detached():
    def attached(p, o, m):
        return -((p - o).exp() * m).sum()

    def detached(p, o, m):
        return -((p - o.detach()).exp() * m).sum()

    roles = {"p": "logp", "o": "old", "m": "mask"}
    assert reaches_old(made(attached, **roles), *tensors(ROWS))
    assert reaches_old(made(attached, **roles | {"o": "mu"}), *tensors(ROWS))
    assert not reaches_old(made(detached, **roles), *tensors(ROWS))
    assert not reaches_old(made(attached, **roles | {"o": "ref"}), *tensors(ROWS))


def test_what_is_no_loss_is_refused_by_its_kind():
    logp, batch = tensors(ROWS, 4)
    wrong = {
        r"returned shape \[3\] for a batch of 2 responses, 4 tokens wide": lambda p, m: p.sum(0)[:3],
        "returned list of lengths ": lambda p, m: [p[0], p[1], p[1]],
        "returned int; expected a torch tensor": lambda p, m: 3,
        "returned dict; expected a torch tensor": lambda p, m: {"value": p.sum()},
        "a tensor of torch.complex64": lambda p, m: p.sum().to(torch.complex64),
    }
    for says, function in wrong.items():
        refuses(says, call, made(function, p="logp", m="mask"), logp, batch, error=LossError)

    def stopped(p):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(made(stopped, p="logp"), logp, batch)


@pytest.mark.parametrize(
    ("names", "one_old", "variants"),
    [
        ("logp old_logp adv mask", True, 4),
        ("logp logp_anchor logp_mu adv", False, 2),
        ("logp batch", False, 1),
        ("logp old_logp sequence_advantages", True, 1),
        ("logp old_logp reward", True, 1),
    ],
)
def test_names_tell_roles_and_the_ways_of_calling(names, one_old, variants):
    space: dict = {}
    exec(f"def loss({', '.join(names.split())}, clip_eps=0.1): pass", space)
    binding = bind(space["loss"], "mine")
    assert (binding.one_old, len(binding.variants()), binding.layout) == (one_old, variants, "padded")
    assert binding.told == {"eps_low": 0.1, "eps_high": 0.1}
    assert bind(space["loss"], "mine", given={"clip_eps": 0.3}).told == {"eps_low": 0.3, "eps_high": 0.3}
    first = binding.variants()[0]
    assert (first.adv_per_token, first.mask_as) == ("sequence_advantages" not in names, "float")


def test_packed_rows_and_lists_are_told_by_their_parameters():
    def packed(logp, adv, cu_seqlens): ...
    def lists(logp: list[torch.Tensor], adv): ...
    def several(logp, adv: list): ...

    found = [bind(each, "mine") for each in (packed, lists, several)]
    assert [each.layout for each in found] == ["packed", "lists", "padded"]
    ways = [(v.adv_per_token, v.row_axis) for v in found[0].variants()]
    assert ways == [(True, True), (False, True), (True, False), (False, False)]
    assert bind(packed, "mine", layout="lists").layout == "lists"
    refuses("layout 'rows' is unknown; expected padded, packed, lists", bind, packed, "mine", layout="rows")
    assert math.isinf(bind(lambda logp, limit=math.inf, delta=math.inf: 0, "mine").told["delta"])
