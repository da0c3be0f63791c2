"""What objectives do with a log's tokens, against ratios known by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import made_logs

from testbed.errors import UserError
from testbed.logs.clip_report import batches, weigh
from testbed.logs.readers import read
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
    return Log("made", (of_ratios(1.0), of_ratios(-1.0)))


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


def test_an_objective_without_ratio_cuts_nothing(log):
    (row,), _ = weigh(log, ["reinforce"])
    assert (row["cut"], row["down"], row["up"], row["largest"]) == (0, 0, 0, 1)


def test_tokens_of_advantage_0_count_among_neither_sign():
    (row,), _ = weigh(Log("made", (of_ratios(0.0),)), ["sft"])  # it weighs every token by 1
    assert row["cut"] == 0
    assert np.isnan([row["cut_positive"], row["cut_negative"]]).all()


def test_tokens_that_weigh_nothing_on_policy_are_counted_nowhere(log):
    one = np.full(1, -4.0)
    short = LoggedSequence(0, "b", "g", one == -4, logp_mu=one, logp_pi=one, advantage=one / -4, reward=1.0)
    idle = Log("made", (*log.sequences, of_ratios(0.0)))
    assert weigh(idle, ["ppo_clip"])[0] == weigh(log, ["ppo_clip"])[0]
    (row,), _ = weigh(Log("made", (*log.sequences, short)), ["ppo_clip"])
    assert row["cut"] == pytest.approx(3 / 13)


def test_a_logged_anchor_takes_the_place_of_the_behavior_policy(log):
    moved = Log(
        "made", tuple(of_ratios(a, logp_anchor=np.full(6, -4.0) + np.log(RATIOS)) for a in (1.0, -1.0))
    )
    (row,), notes = weigh(moved, ["ppo_clip"])
    assert row["cut"] == 0  # pi is the anchor
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
        one("g", 0.0),
        one("g", 3.0),
        one("h", 1.0),
        one("h", 2.0),
        one("h", 6.0),
        one("h", 50.0, -np.inf),
    ]
    held = batches(Log("made", tuple(some)))
    assert held.pairs[0][1].adv_BT[:, 0].tolist() == [-1.5, 1.5, -2.0, -1.0, 3.0]
    assert "reward minus the group mean" in held.notes[0]
    with pytest.raises(UserError, match="neither advantage nor reward"):
        batches(Log("made", (one("g", None),)))


def test_objectives_that_read_what_is_not_there_are_named(log):
    rows, notes = weigh(log, ["dpo", "kl_penalty", "tis"])
    assert [row["objective"] for row in rows] == ["tis"]
    assert "2 objectives need inputs that the log lacks: dpo, kl_penalty." in notes


def test_a_log_of_advantages_alone_has_rewards_of_zero_and_says_what_it_lacks(log):
    bare = Log("made", tuple(replace(one, reward=None) for one in log.sequences))
    (_, batch), *_ = batches(bare).pairs
    assert batch.reward_B.tolist() == [0.0, 0.0]
    assert batch.adv_BT.tolist() == [[1.0] * len(RATIOS), [-1.0] * len(RATIOS)]
    assert torch.equal(batch.logp_anchor_BT, batch.logp_mu_BT)
    rows, notes = weigh(bare, ["ppo_clip"])
    assert rows == weigh(log, ["ppo_clip"])[0]
    assert "the behavior policy is used" in notes[0]


def test_sequences_with_a_token_that_is_not_finite_are_left_out_and_counted(log):
    bad = of_ratios(1.0)
    bad.logp_pi[2] = -np.inf
    held = batches(Log("made", (*log.sequences, bad)))
    assert len(held.pairs[0][0]) == 2
    assert "1 of 3 sequences have no token or a token that is not finite" in " ".join(held.notes)


def test_long_logs_are_thinned_evenly_and_that_is_told(tmp_path):
    made_logs.own(tmp_path / "log")
    log = read([tmp_path / "log"])
    held = batches(log, budget=1)
    assert len(held.pairs) == 1
    assert torch.equal(held.pairs[0][0], batches(log.at(log.steps[-1])).pairs[0][0])  # the newest
    assert "1 of 2 steps are read" in " ".join(held.notes)


@pytest.mark.slow
def test_every_registered_objective_is_asked_or_named(log):
    from testbed.objectives import objective

    rows, notes = weigh(log)
    named = notes[-1].partition(": ")[2].rstrip(".").split(", ")
    assert sorted([*(row["objective"] for row in rows), *named]) == sorted(objective)
    assert all(0 <= row["cut"] <= 1 or np.isnan(row["cut"]) for row in rows)
