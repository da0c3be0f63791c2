"""Lag is exact by construction: what is read is what was written k steps before."""

from __future__ import annotations

import pytest
import torch

from testbed.errors import UserError
from testbed.staleness.exact_lag import ExactLag


def test_each_replica_reads_the_weights_of_exactly_its_own_lag():
    lags = [0, 1, 3, 7]
    history = [torch.full((4, 2), float(t)) for t in range(20)]
    ring = ExactLag(history[0], lags)
    for step, theta in enumerate(history):
        read = ring.behavior(theta, step)
        for replica, lag in enumerate(lags):
            assert read[replica, 0] == max(step - lag, 0)
        assert ring.version(step).tolist() == [max(step - lag, 0) for lag in lags]


def test_lag_zero_returns_the_very_bits_it_was_given():
    ring = ExactLag(torch.zeros(2, 3), [0, 5])
    theta = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ring.behavior(theta, 9)[0], theta[0])


def test_later_changes_of_the_weights_do_not_reach_the_snapshot():
    theta = torch.zeros(1, 2)
    ring = ExactLag(theta, [1])
    ring.behavior(theta, 0)
    theta += 5
    assert (ring.behavior(theta, 1) == 0).all()


def test_memory_is_stated_before_it_is_taken():
    ring = ExactLag(torch.zeros(2, 10), [0, 8])
    assert ring.slots_MP.nbytes == ExactLag.bytes(10, [0, 8])


def test_negative_and_missing_lags_are_refused():
    with pytest.raises(UserError, match="lag -1 is negative"):
        ExactLag(torch.zeros(2, 1), [0, -1])
    with pytest.raises(UserError, match="1 lags were given for 2 replicas"):
        ExactLag(torch.zeros(2, 1), [0])
