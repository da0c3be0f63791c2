"""Objectives that must agree in a limit, and values worked by hand for one objective alone."""

import torch
from support.fixtures import batch_of, weights

from testbed.inspection.effective_weights import effective_weights


def test_m2po_with_no_budget_keeps_only_what_is_not_harmful():
    logp, batch = batch_of()
    harmful = batch.mask_BT & (batch.adv_BT * (logp - batch.logp_mu_BT) > 0)
    assert ((weights("m2po", tau=0.0) == 0) == (harmful | ~batch.mask_BT)).all()


def test_a_weight_that_overflows_weighs_nothing_where_there_is_no_advantage():
    logp, batch = batch_of([(0.0, (1.5, 0.5)), (1.0, (1.1,))])
    far = logp + 1e4
    weight = effective_weights("importance_reinforce", far, batch)
    assert (weight[0] == 0).all()
    assert weight[1, 0] == torch.inf
