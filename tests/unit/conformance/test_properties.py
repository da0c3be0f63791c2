"""Every property of the battery alone: the losses that break it, and the batches that it draws."""

import math

import pytest
import torch

from testbed.conformance.batches import Row, Token, tensors
from testbed.conformance.battery import BATTERY
from testbed.conformance.catalogue_entry import Reference
from testbed.conformance.properties import Judged, around, bounds, unlike
from testbed.conformance.signature import Binding
from testbed.conformance.strategies import smallest
from testbed.recipes.composition import pairs

ROWS = (
    Row((Token(0.5, 0.125), Token(kept=False), Token(-0.25)), 1.0, 0.5, 0),
    Row((Token(-1.0), Token(2.0)), -1.0, 1.0, 1),
    Row((Token(0.125),), 0.5, 0.0, 1),
)
FAR = (Row((Token(800.0),)), Row((Token(-80.0), Token(0.1)), -1.0))
NAMES = (
    "ordinary batches; both sides of every bound; on the bounds; responses of one token; "
    "ragged rows, masked middles; groups of one, equal rewards, A = 0; padding; float32; bfloat16; "
    "log-ratios up to 80; log-ratios up to 800; NaN under the mask"
)
WEIGHTS = set(NAMES.split("; "))
"""Properties that hold the weights against those of the entry."""
TWICE = {"order of rows", "packed neighbors", "micro-batches and ranks", "chunks of tokens"}
"""Properties that hold two calls, or parts of one, against each other."""
LATER = {"log-ratios up to 80", "log-ratios up to 800", "NaN under the mask"}
"""Properties that the battery asks last."""
CALLS: list[int] = []


def mean(p, a, m):
    """REINFORCE as a mean over tokens; numbers outside the mask leave no trace."""
    return -(torch.where(m > 0, p, 0.0) * a).sum() / m.sum()


def counted(p, o, a, m):
    CALLS.append(1)
    return mean(p, a, m) * len(CALLS)


def in_place(p, o, a, m):
    loss = mean(p, a.clone(), m)
    a[m == 0] += 1
    return loss


def multiplied(p, o, a, m):
    return -(p.exp().log() * a * m).sum() / m.sum()


def by_place(p, o, a, m):
    return mean(p, a * torch.arange(1, len(p) + 1)[:, None], m)


def with_old(p, o, a, m):
    return mean(p, a, m) + ((o - o.detach()) * m).sum()


def of_dtype(dtype, factor):
    return lambda p, o, a, m: mean(p, a, m) * (factor if p.dtype == dtype else 1)


def by_width(p, o, a, m):
    return mean(p, a, m) * 3 / p.shape[1]


def with_ratios(p, o, a, m):
    u = (p - o).exp()
    return -((u / u.detach()) * a * m).sum() / m.sum()


BREAKS = {
    "the mean": (lambda p, o, a, m: mean(p, a, m), set()),
    "twice the mean": (lambda p, o, a, m: 2 * mean(p, a, m), WEIGHTS),
    "another sign": (lambda p, o, a, m: mean(p, a.abs(), m), WEIGHTS),
    "the mean over width": (by_width, {"padding", "NaN under the mask", "chunks of tokens"}),
    "a mask that multiplies": (multiplied, {"NaN under the mask"}),
    "rows by their place": (by_place, WEIGHTS | {"order of rows", "micro-batches and ranks"}),
    "the neighbor's probability": (lambda p, o, a, m: mean(p, a * p[0, 0].detach(), m), WEIGHTS | TWICE),
    "the number of calls": (counted, TWICE | LATER | {"gradient accumulation"}),
    "old with a gradient": (with_old, {"detached weights"}),
    "changed advantages": (in_place, {"inputs unchanged"}),
    "single precision": (of_dtype(torch.float32, 1.005), {"float32"}),
    "half precision": (of_dtype(torch.bfloat16, 1.2), {"bfloat16"}),
}
"""A loss, and the properties that it breaks on ROWS."""


def judged(function, arguments="poam", **more):
    roles = {"p": "logp", "o": "old", "a": "adv", "m": "mask", "n": "tokens"}
    binding = Binding(function, "mine", {name: roles[name] for name in arguments}, **more)
    return Judged(binding, Reference("reinforce", aggregation="token_mean"), 1e-5)


@pytest.mark.parametrize("name", BREAKS)
def test_a_loss_breaks_the_properties_that_it_lacks_and_no_other(name):
    function, expected = BREAKS[name]
    one = judged(function)
    found = set()
    for each in BATTERY:
        CALLS.clear()
        if each.broken(one, ROWS):
            found.add(each.name)
    assert found == expected


def broken(one, rows):
    return {each.name for each in BATTERY if each.broken(one, rows)}


def test_a_ratio_that_overflows_breaks_large_log_ratios_alone():
    large = {"log-ratios up to 80", "log-ratios up to 800", "ordinary batches"}
    assert broken(judged(with_ratios), FAR) >= large
    assert broken(judged(BREAKS["the mean"][0]), FAR) == set()
    weighted = judged(lambda p, o, a, m: -((p - o).exp() * a * m).sum())
    assert "packed neighbors" not in broken(weighted, ROWS), "a row's own weight may change"


def test_a_mean_over_its_part_breaks_the_parts_where_the_whole_is_told():
    local = judged(lambda p, a, m, n: mean(p, a, m), "pamn")
    assert broken(local, ROWS) == {"micro-batches and ranks", "chunks of tokens"}
    whole = judged(lambda p, a, m, n: mean(p, a, m) * m.sum() / n, "pamn")
    assert broken(whole, ROWS) == set()


def test_on_a_bound_the_weights_of_either_side_are_right():
    one = Judged(judged(None).binding, Reference("ppo_clip"), 1e-5)
    logp, batch = tensors((Row((Token(math.log(1.2)),)), Row((Token(0.0), Token(0.0)), -1.0)))
    at, above, below = one.expected(logp, batch, 1e-8)
    assert (above[0, 0].item(), below[0, 0].item()) == (0.0, pytest.approx(1.2))
    assert at[1].tolist() == [-1.0, -1.0]
    assert len(one.expected(logp, batch, 0.0)) == 1
    for number, wrong in ((0.0, False), (1.2, False), (0.6, True), (math.nan, True)):
        mine = torch.tensor([[number, 0.0], [-1.0, -1.0]], dtype=torch.float64)
        assert unlike(one, mine, logp, batch) is wrong
    outside = torch.tensor([[0.0, 0.1], [-1.0, -1.0]], dtype=torch.float64)
    assert unlike(one, outside, logp, batch)
    near = torch.tensor([[0.0, 0.0], [-1.0, -1.001]], dtype=torch.float64)
    assert unlike(one, near, logp, batch)
    assert not unlike(one, near, logp, batch, tolerance=0.01)


def test_bounds_are_the_log_ratios_that_hyperparameters_imply():
    two = Reference("dual_clip", pairs(eps_low=0.95, c=9.0))
    assert bounds(two) == pytest.approx([math.log(x) for x in (0.05, 0.2, 0.8, 0.95, 1.2, 1.95, 9.0, 10.0)])
    assert bounds(Reference("reinforce")) == []
    alike = Reference("ppo_clip", pairs(eps_low=0.2, eps_high=0.2))
    found = around(Judged(judged(None).binding, alike, 1e-5))
    log = math.log(0.2)
    assert found[:6] == pytest.approx([log - 0.05, log + 0.05, 0.9 * log, 1.1 * log, -log, 2 * log])
    assert len(found) == 18


DRAWN = {
    "on the bounds": lambda row, token: token == Token(),
    "responses of one token": lambda row, token: len(row.tokens) == 1,
    "groups of one, equal rewards, A = 0": lambda row, token: row.adv in (0.0, 1.0, -1.0) and row.group < 5,
    "bfloat16": lambda row, token: token.log_ratio * 8 == int(token.log_ratio * 8) and token.kept,
    "log-ratios up to 80": lambda row, token: abs(token.log_ratio) in (80, 40, 20, 0.1, 0),
    "log-ratios up to 800": lambda row, token: abs(token.log_ratio) in (800, 400, 200, 0.1, 0),
    "ordinary batches": lambda row, token: token.kept and token.log_mismatch == 0,
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_property_draws_the_batches_of_its_name(name):
    (each,) = (each for each in BATTERY if each.name == name)
    odd = lambda rows: not all(DRAWN[name](r, t) for r in rows for t in r.tokens)  # noqa: E731
    assert smallest(each.strategy(judged(None)), odd, 8) is None


CARRIES = {"detached weights": "the entry's weight carries a gradient itself"}


PADDED = {"packed neighbors": "the loss takes no packed row"}
PACKED = {"padding": "rows of this layout have no padding"}
WHOLE = "the loss needs whole groups"
BEYOND = {"chunks of tokens": "the entry itself looks beyond a token"}
ROW = dict.fromkeys(
    ("packed neighbors", "micro-batches and ranks"), "the entry itself looks beyond a response"
)
MEANS = {"chunks of tokens": "only padded losses with a mean over tokens are asked"}


@pytest.mark.parametrize(
    ("layout", "reference", "reasons"),
    [
        ("padded", Reference("reinforce", aggregation="token_mean"), PADDED | CARRIES),
        ("packed", Reference("reinforce", aggregation="token_mean"), PACKED | MEANS | CARRIES),
        (
            "padded",
            Reference("gspo", aggregation="constant", advantage="group_mean"),
            PADDED | {"micro-batches and ranks": WHOLE} | BEYOND | CARRIES,
        ),
        ("packed", Reference("m2po"), PACKED | ROW | BEYOND | CARRIES),
        ("padded", Reference("cispo", aggregation="token_mean"), PADDED),
    ],
)
def test_a_property_that_a_loss_cannot_have_says_why(layout, reference, reasons):
    one = Judged(judged(None, layout=layout).binding, reference, 1e-5)
    assert {each.name: why for each in BATTERY if (why := each.absent(one))} == reasons


def test_a_loss_of_whole_batches_is_not_asked_for_its_parts():
    binding = Binding(None, "mine", {"p": "logp", "b": "batch"})
    one = Judged(binding, Reference("reinforce", aggregation="token_mean"), 1e-5)
    found = {each.name: each.absent(one) for each in BATTERY}
    assert found["micro-batches and ranks"] == found["chunks of tokens"] == WHOLE
