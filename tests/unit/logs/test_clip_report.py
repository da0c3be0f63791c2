"""What objectives do with a log's tokens, against ratios known by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from testbed.errors import UserError
from testbed.logs import clip_report
from testbed.logs.clip_report import Batches, batches, chunks, weigh
from testbed.logs.record import Log, LoggedSequence

RATIOS = np.array([0.4, 0.9, 1.0, 1.1, 1.5, 3.0])


def of_ratios(adv, **fields):
    mu = np.full(len(RATIOS), -4.0)
    return LoggedSequence(
        0, "a", "g", np.ones(len(RATIOS), dtype=bool), logp_mu=mu, logp_pi=mu + np.log(RATIOS),
        advantage=np.full(len(RATIOS), adv), reward=adv, **fields,
    )  # fmt: skip


@pytest.fixture(scope="module")
def log():
    return Log("made", (of_ratios(0.5), of_ratios(-0.5)))


def test_the_clip_cuts_the_tokens_that_its_bounds_name(log):
    (row,), notes = weigh(log, ["ppo_clip"])
    assert row["cut_positive"] == pytest.approx(2 / 6)  # 1.5 and 3
    assert row["cut_negative"] == pytest.approx(1 / 6)  # 0.4
    assert row["cut"] == pytest.approx(3 / 12)
    assert row["down"] == pytest.approx(1 / 12)  # 0.4 with A > 0
    assert row["up"] == pytest.approx(1 / 12)  # 3 with A < 0
    assert row["largest"] == pytest.approx(3.0)
    assert row["positive_share"] == pytest.approx((0.4 + 0.9 + 1 + 1.1) / (3.4 + 0.9 + 1 + 1.1 + 1.5 + 3))
    assert "No anchor is logged: the behavior policy is used in its place." in notes


def test_the_shares_of_an_objective_are_those_of_its_factors(monkeypatch):
    """A weight of half or twice its on-policy value is neither down nor up; A = 0 has neither sign."""
    parts = [
        ([0, 0.25, 0.5, 1, 2, 2.5], [1, 1, -1, 0, 1, -1], [0, 1, 2, 4, 8, 16]), ([0, 0], [-1, 0], [0, 0]),
        ([], [], []),
    ]  # fmt: skip
    monkeypatch.setattr(clip_report, "_factors", lambda _, pi, b: [torch.tensor(x).float() for x in parts[b]])

    def shares(*which):
        return [*clip_report._shares("any", Batches(tuple((None, n) for n in which), ())).values()]

    assert shares(0, 1, 2) == pytest.approx([3 / 8, 1 / 3, 1 / 3, 1 / 8, 1 / 8, 2.5, 9 / 31])
    assert shares(1) == pytest.approx([1, math.nan, 1, 0, 0, 0, math.nan], nan_ok=True)
    assert np.isnan(shares(2)).all()


def test_tokens_that_weigh_nothing_on_policy_are_counted_nowhere(log):
    one = np.full(1, -4.0)
    short = LoggedSequence(0, "b", "g", one == -4, logp_mu=one, logp_pi=one, advantage=one / -8, reward=1.0)
    idle = Log("made", (*log.sequences, of_ratios(0.0)))
    assert weigh(idle, ["ppo_clip"])[0] == weigh(log, ["ppo_clip"])[0]
    (row,), _ = weigh(Log("made", (*log.sequences, short)), ["ppo_clip"])
    assert row["cut"] == pytest.approx(3 / 13)


def test_a_logged_anchor_takes_the_place_of_the_behavior_policy(log):
    moved = Log("made", tuple(of_ratios(a, logp_anchor=np.log(RATIOS) - 4.0) for a in (1.0, -1.0)))
    (row,), notes = weigh(moved, ["ppo_clip"])
    assert (row["cut"], row["down"], row["up"], row["largest"]) == (0, 0, 0, 1)  # pi is the anchor
    assert not any("anchor" in note for note in notes)


def test_on_policy_weights_are_taken_at_the_anchor_that_is_mu():
    ratio, anchor = np.full(1, -4.0), np.full(1, -4.0 + np.log(2.0))
    one = LoggedSequence(0, "a", "g", np.ones(1, dtype=bool), logp_mu=ratio, logp_pi=anchor,
                         logp_anchor=anchor, advantage=np.ones(1), reward=1.0)  # fmt: skip
    (row,), _ = weigh(Log("made", (one,)), ["decoupled_ppo"])
    assert row["largest"] == pytest.approx(2.0)  # anchor / mu, where on-policy the weight is 1


def test_missing_advantages_are_rewards_less_the_mean_of_what_is_kept_of_a_group():
    def one(group, reward, pi=-1.0):
        mu, mask = -np.ones(1), np.ones(1, dtype=bool)
        return LoggedSequence(0, "a", group, mask, logp_mu=mu, logp_pi=np.array([pi]), reward=reward)

    some = [
        one("g", 0.0), one("g", 3.0), one("h", 1.0), one("h", 2.0), one("h", 6.0), one("h", 50.0, -np.inf),
    ]  # fmt: skip
    held = batches(Log("made", tuple(some)))
    assert held.pairs[0][1].adv_BT[:, 0].tolist() == [-1.5, 1.5, -2.0, -1.0, 3.0]
    assert "reward minus the group mean" in held.notes[0]
    with pytest.raises(UserError, match="of 1, 1 have no advantage and 1 no reward"):
        batches(Log("made", (one("g", None),)))


def test_objectives_that_read_what_is_not_there_are_named(log):
    names = ["dpo", "oapl", "kl_penalty", "rebel", "tis"]
    bare = Log("made", tuple(replace(one, reward=None) for one in log.sequences))
    for some, named in ((log, "2 of 5: dpo, kl_penalty"), (bare, "4 of 5: dpo, oapl, kl_penalty, rebel")):
        rows, notes = weigh(some, names)
        lacking = named.partition(": ")[2]
        assert [row["objective"] for row in rows] == [each for each in names if each not in lacking]
        assert notes[-1] == f"{named[0]} objectives need inputs that the log lacks: {lacking}."


def test_a_log_of_advantages_alone_has_rewards_of_zero_and_says_what_it_lacks(log):
    bare = Log("made", tuple(replace(one, reward=None) for one in log.sequences))
    (_, batch), *_ = batches(bare).pairs
    assert batch.reward_B.tolist() == [0.0, 0.0]
    assert batch.adv_BT.tolist() == [[0.5] * len(RATIOS), [-0.5] * len(RATIOS)]
    assert torch.equal(batch.logp_anchor_BT, batch.logp_mu_BT)
    rows, notes = weigh(bare, ["ppo_clip"])
    assert rows == weigh(log, ["ppo_clip"])[0]
    assert "the behavior policy is used" in notes[0]


@pytest.mark.parametrize(
    ("budget", "read"),
    [(1, [9]), (11, [9]), (12, [0, 9]), (18, [0, 4, 9]), (24, [0, 4, 5, 9]), (35, [0, 2, 4, 7, 9]),
     (36, [0, 2, 4, 5, 7, 9]), (10**6, [0, 2, 4, 5, 7, 9])],
)  # fmt: skip
def test_long_logs_are_thinned_evenly_and_that_is_told(budget, read, log):
    """Six tokens a step."""
    steps = [0, 2, 4, 5, 7, 9]
    long = Log("made", tuple(replace(log.sequences[0], step=step, reward=float(step)) for step in steps))
    held = batches(long, budget=budget)
    assert [int(batch.reward_B[0]) for _, batch in held.pairs] == read
    said = f"{len(read)} of 6 steps are read, spread evenly."
    assert [note for note in held.notes if "steps are read" in note] == [said] * (read != steps)


def test_a_batch_holds_what_was_logged_with_zeros_outside_the_mask():
    def one(name, group, length, **fields):
        row = np.arange(length) + 10.0 * name
        mask = row != 10.0 * name + 1
        return LoggedSequence(
            0, str(name), group, mask, logp_pi=-row - 0.5, reward=float(name),
            **{"logp_mu": -row, "logp_anchor": -row - 0.75, "advantage": row + 0.25, **fields},
        )  # fmt: skip

    some = [one(1, "b", 3), one(2, "a", 1), one(3, "b", 2)]
    bad = [one(n, "a", 2, **{name: np.array([value, 0.0])}) for n, (name, value) in enumerate((
        ("logp_anchor", -np.inf), ("logp_anchor", np.nan), ("advantage", np.inf), ("logp_mu", -np.inf)),
        start=4)]  # fmt: skip
    masked = one(8, "c", 2, logp_anchor=np.array([-80.75, np.nan]))
    held = batches(Log("made", (*some, *bad, masked)))
    ((pi_BT, batch),) = held.pairs
    wanted = {
        "logp_mu_BT": [[-10, 0, -12], [-20, 0, 0], [-30, 0, 0], [-80, 0, 0]],
        "adv_BT": [[10.25, 0, 12.25], [20.25, 0, 0], [30.25, 0, 0], [80.25, 0, 0]],
        "mask_BT": [[1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0]], "reward_B": [1, 2, 3, 8],
        "group_B": [1, 0, 1, 2],
        "logp_anchor_BT": [[-10.75, 0, -12.75], [-20.75, 0, 0], [-30.75, 0, 0], [-80.75, 0, 0]],
    }  # fmt: skip
    found = {name: getattr(batch, name).tolist() for name in wanted}
    wanted["group_B"] = [0, 1, 0, 2]
    assert found == wanted
    assert pi_BT.tolist() == [[-10.5, 0, -12.5], [-20.5, 0, 0], [-30.5, 0, 0], [-80.5, 0, 0]]
    assert held.notes == ("4 of 8 sequences have no token or a token that is not finite: left out.",)
    with pytest.raises(UserError, match="No sequence has finite log-probabilities and advantages throughout"):
        batches(Log("made", tuple(bad)))


@pytest.mark.parametrize(
    ("length", "group", "kept", "wanted"),
    [
        ([16, 1, 1, 1, 1], "abcde", "11111", [[0, 1, 2, 3, 4]]),  # 80 entries for 20 tokens
        ([17, 1, 1, 1, 1], "abcde", "11111", [[1, 2, 3, 4], [0]]),  # 85 for 21
        ([17, 1, 1, 1, 1], "aaaba", "11111", [[3], [0, 1, 2, 4]]),
        ([17, 1, 1, 1, 1, 3], "aaaaab", "111111", [[1, 2, 3, 4, 5], [0]]),
        ([17, 1, 99, 1, 1, 1], "abcdef", "110111", [[1, 3, 4, 5], [0]]),
        ([2, 30, 1, 1, 1, 1, 1], "baccccc", "1111111", [[2, 3, 4, 5, 6, 0], [1]]), ([], "", "", [[]]),
    ],
)  # fmt: skip
def test_batches_are_padded_to_four_times_their_tokens(length, group, kept, wanted, monkeypatch):
    given = (
        torch.tensor(length), torch.tensor([ord(c) for c in group]), torch.tensor([c == "1" for c in kept]),
    )  # fmt: skip
    assert len(chunks(*given)) == 1  # small batches stay whole
    monkeypatch.setattr(clip_report, "FREE", 0)
    assert chunks(*given) == wanted


@pytest.mark.slow
def test_every_registered_objective_is_asked_or_named(log):
    from testbed.objectives import objective

    rows, notes = weigh(log)
    named = notes[-1].partition(": ")[2].rstrip(".").split(", ")
    assert sorted([*(row["objective"] for row in rows), *named]) == sorted(objective)
    assert all(0 <= row["cut"] <= 1 or np.isnan(row["cut"]) for row in rows)
