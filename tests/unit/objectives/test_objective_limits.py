"""Objectives that must agree in a limit, and values worked by hand for one objective alone."""

import numpy as np
import pytest
import torch
from support.fixtures import batch_of, weights

from testbed.errors import UserError
from testbed.inspection.effective_weights import effective_weights
from testbed.inspection.shared_statistic import shared_statistic


def test_m2po_keeps_three_of_four_tokens_on_the_worked_example():
    moves = [0.1, -(0.02**0.5), 0.3, -0.6]
    sequences = [(np.sign(m), (float(np.exp(m)),)) for m in moves]
    kept = weights("m2po", sequences, tau=0.0400001) != 0
    assert kept.flatten().tolist() == [True, True, True, False]


def test_m2po_with_an_infinite_budget_is_token_importance_weighting():
    torch.testing.assert_close(
        weights("m2po", tau=float("inf")), weights("importance_reinforce", level="token")
    )


def test_m2po_with_no_budget_keeps_only_what_is_not_harmful():
    logp, batch = batch_of()
    harmful = batch.mask_BT & (batch.adv_BT * (logp - batch.logp_mu_BT) > 0)
    assert ((weights("m2po", tau=0.0) == 0) == (harmful | ~batch.mask_BT)).all()


@pytest.mark.parametrize("name", ["ppo_clip", "dual_clip"])
def test_clips_that_never_bind_leave_token_importance_weighting(name):
    token = weights("importance_reinforce", [(1.0, (1.5, 0.5)), (-1.0, (0.5, 4.0))], level="token")
    wide = {"eps_low": 1.0, "eps_high": 1e9} | ({"c": 1e9} if name == "dual_clip" else {})
    torch.testing.assert_close(weights(name, [(1.0, (1.5, 0.5)), (-1.0, (0.5, 4.0))], **wide), token)


def test_an_objective_without_a_batch_statistic_says_so():
    logp, batch = batch_of()
    with pytest.raises(UserError, match="'cispo' has no batch statistic"):
        shared_statistic("cispo", [(logp, batch)])


def test_a_weight_that_overflows_weighs_nothing_where_there_is_no_advantage():
    logp, batch = batch_of([(0.0, (1.5, 0.5)), (1.0, (1.1,))])
    far = logp + 1e4
    weight = effective_weights("importance_reinforce", far, batch)
    assert (weight[0] == 0).all()
    assert weight[1, 0] == torch.inf
