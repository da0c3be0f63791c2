"""Three policies: the worked table, limits between objectives, and both meanings of a dropped token."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from references.weights import WEIGHTS
from support.fixtures import SEQUENCES, Sequence, batch_of, changed, rows_of, weights
from support.refusals import refuses

from testbed.errors import UserError
from testbed.inspection.effective_weights import effective_weights
from testbed.inspection.kept_mask import kept_mask
from testbed.losses.aggregate import aggregate
from testbed.objectives import objective
from testbed.objectives.decoupled.kl_rejection import divergence

DECOUPLED = sorted(name for name in objective if objective[name].family == "decoupled")


def token(adv, d, u):
    """One token by anchor/mu and pi/anchor."""
    return [Sequence(adv, (d * u,), (d,))]


# One token: mu = .10, anchor = .20, pi = .22, so that d = 2, u = 1.1, pi/mu = 2.2. (scheme, objective,
# hyperparameters, d, u, w/A for A > 0, w/A for A < 0); eps = .2 everywhere.
TABLE = [
    ("TIS C=2", "tis", {}, 2.0, 1.1, 2.2, 2.2),
    ("TIS C=2 with dual clip 3", "tis@verl", {}, 2.0, 1.1, 2.2, 2.2),
    ("TIS C=1.5", "tis", {"cap": 1.5}, 2.0, 1.1, 1.65, 1.65),
    ("IcePop [.5, 5]", "icepop", {}, 2.0, 1.1, 2.2, 2.2),
    ("IcePop [.5, 1.5]", "icepop", {"high": 1.5}, 2.0, 1.1, 0.0, 0.0),
    ("bypass PPO: anchor = mu", "dual_clip", {}, 1.0, 2.2, 0.0, 2.2),
    ("bypass REINFORCE C=2", "importance_reinforce", {"level": "token", "cap": 2.0}, 1.0, 2.2, 2.0, 2.0),
    ("old logits replaced by pi", "tis", {}, 2.2, 1.0, 2.0, 2.0),
    ("A-3PO alpha=.5: anchor .14832", "decoupled_ppo", {}, 1.48324, 1.48324, 0.0, 2.2),
    ("EWMA anchor .21", "decoupled_ppo", {}, 2.1, 0.22 / 0.21, 2.2, 2.2),
    ("EWMA anchor .15", "decoupled_ppo", {}, 1.5, 0.22 / 0.15, 0.0, 2.2),
]


@pytest.mark.parametrize(("scheme", "name", "hyper", "d", "u", "up", "down"), TABLE)
def test_the_worked_table_of_one_token_and_three_policies(scheme, name, hyper, d, u, up, down):
    assert float(weights(name, token(1.0, d, u), **hyper)) == pytest.approx(up, abs=2e-5)
    assert float(weights(name, token(-1.0, d, u), **hyper)) == pytest.approx(-down, abs=2e-5)


def test_the_value_of_a_cut_token_is_the_bound_times_the_weight():
    logp, batch = batch_of(token(1.0, 1.5, 0.22 / 0.15))
    loss = objective["decoupled_ppo"].function(logp, batch)
    assert float(loss) == pytest.approx(-1.8)


@pytest.mark.parametrize("name", DECOUPLED)
def test_hand_derived_rows_hold_where_tokens_and_sequences_are_dropped(name):
    # The common fixture is mild: its mismatch trips hardly any gate.
    for power in (3, 12, -12, 30):
        far = changed(
            ratios=lambda s, power=power: tuple(x**power for x in s.ratios),
            anchor=lambda s, power=power: s.anchor and tuple(x**power for x in s.anchor),
        )
        weight = weights(name, far)
        rows = rows_of(far)
        for b, row in enumerate(rows):
            np.testing.assert_allclose(weight[b, : row.n], WEIGHTS[name](row, rows), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("level", "limit", "kept"),
    [("sequence_sum", 0.59, False), ("sequence_sum", 0.60, True), ("sequence_mean", 0.19, False),
     ("sequence_mean", 0.20, True), ("sequence_max", 0.3, False), ("sequence_max", 0.31, True)],
)  # fmt: skip
def test_levels_of_kl_rejection(level, limit, kept):
    # k3 at d = 2, 1.5, 0.5: 0.30685, 0.09453, 0.19315; sum 0.59453, mean 0.19818
    ratios = (2.0, 1.5, 0.5)
    weight = weights("kl_rejection", [Sequence(1.0, ratios, ratios)], level=level, limit=limit)
    assert (weight != 0).all() if kept else (weight == 0).all()


def test_divergences_are_of_the_tokens_under_the_mask_alone():
    """k1 = -log d is negative where the anchor has more mass than mu: padding is not the largest there."""
    logs = ((0.5, 0.25, 1.0), (2.0,))
    batch = batch_of([Sequence(1.0, ratios, ratios) for ratios in (tuple(map(math.exp, x)) for x in logs)])[1]
    estimators = {"k1": lambda x: -x, "k2": lambda x: x * x / 2, "k3": lambda x: math.exp(x) - 1 - x}
    levels = {"sum": sum, "mean": lambda row: sum(row) / len(row), "max": max}
    for estimator, token in estimators.items():
        rows = [[token(x) for x in row] for row in logs]
        for level, of_row in levels.items():
            found = divergence(batch, estimator, f"sequence_{level}")
            wanted = np.repeat([[of_row(row)] for row in rows], 3, 1)
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, err_msg=f"{estimator} {level}")
        found = divergence(batch, estimator, "token")
        np.testing.assert_allclose(found[batch.mask_BT].numpy(), [*rows[0], *rows[1]], rtol=1e-12)


def test_a_bound_of_zero_is_allowed():
    far = [Sequence(1.0, (math.exp(-10.0),), (math.exp(-10.0),))]  # its weight is all there is to divide by
    assert float(weights("tis@verl-normalized", far)) == pytest.approx(1.0)
    assert (weights("tis", cap=0.0) == 0).all()
    torch.testing.assert_close(weights("tis@openrlhf", low=0.0, high=2.0), weights("tis"))
    assert float(weights("kl_rejection@verl", token(1, 50.0, 1), low=0.0)) == 1


def test_windows_include_their_ends():
    exact = [Sequence(1.0, (1.0, 1.0))]  # d = 1 without rounding
    for name in ("mis", "icepop", "sequence_mask_tis", "geometric_rejection"):
        assert (weights(name, exact, low=1.0, high=1.0) == 1).all()
    assert (weights("token_veto", exact, floor=1.0) == 1).all()
    assert (weights("kl_rejection", exact, limit=0.0) == 1).all()
    assert (weights("decoupled_ppo@areal", exact, cap=1.0) == 1).all()


def test_the_inverted_window_of_a_divergence_includes_its_ends():
    exact = [Sequence(1.0, (1.0, 1.0))]
    assert (weights("kl_rejection@verl", exact, low=1.0, high=1.0) == 1).all()
    assert (weights("kl_rejection@verl", exact, low=0.5, high=0.999) == 0).all()
    assert (weights("kl_rejection@verl", exact, low=1.001, high=2.0) == 0).all()


def test_a_vanishing_mismatch_times_an_overflowing_ratio_is_their_product():
    logp, batch = batch_of([Sequence(-1.0, (1.5,))])
    far = replace(batch, logp_anchor_BT=batch.logp_anchor_BT - 1e4)
    assert float(effective_weights("decoupled_ppo", logp, far)) == pytest.approx(-1.5)


def loss(name, mask, mode, sequences=SEQUENCES, **hyper):
    logp, batch = batch_of(sequences)
    return float(aggregate(objective[name].function(logp, batch, **hyper), mask(logp, batch), mode))


def all_tokens(logp, batch):
    return batch.mask_BT


TWO = (Sequence(1.0, (1.1, 1.0), (1.0, 1.0)), Sequence(1.0, (6.0, 9.0), (6.0, 9.0)))


def test_a_sequence_that_is_dropped_whole_counts_as_zero_or_not_at_all():
    def kept(logp, batch):
        return kept_mask("icepop", logp, batch)

    assert loss("icepop", all_tokens, "sequence_mean", TWO) == pytest.approx(-1.05 / 2)
    assert loss("icepop", kept, "sequence_mean", TWO) == pytest.approx(-1.05)


@pytest.mark.parametrize("mode", ["token_mean", "sequence_mean", "token_sum", "constant"])
def test_when_everything_is_dropped_the_loss_is_zero(mode):
    logp, batch = batch_of(TWO[1:])
    kept = kept_mask("icepop", logp, batch)
    assert not kept.any()
    assert loss("icepop", all_tokens, mode, TWO[1:]) == 0
    assert loss("icepop", lambda *_: kept, mode, TWO[1:]) == 0


def test_hyperparameters_move_the_kept_mask_as_they_move_the_loss():
    logp, batch = batch_of(TWO)
    assert kept_mask("icepop", logp, batch, high=6.5).tolist() == [[True, True], [True, False]]
    assert kept_mask("sequence_mask_tis@openrlhf", logp, batch, high=7.0).tolist() == [
        [True] * 2,
        [False] * 2,
    ]
    with pytest.raises(UserError, match="'icepop' has no hyperparameter 'hihg'.*Did you mean 'high'"):
        kept_mask("icepop", logp, batch, hihg=2.0)


def test_every_family_that_drops_tokens_has_a_kept_mask_and_one_that_drops_none_is_named():
    logp, batch = batch_of()
    refuses("'tis' drops no tokens", kept_mask, "tis", logp, batch)
    kept = kept_mask("m2po", logp, batch, tau=0.0)
    assert ((weights("m2po", tau=0.0) != 0) == kept).all()
