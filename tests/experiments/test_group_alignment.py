"""The group alignment loss, in place of an advantage."""

import torch
from torch.nn.functional import logsigmoid

from analysis.experiments.experts.expert_help import alignment


def test_a_response_gets_minus_the_slope_of_the_mean_loss_over_pairs():
    logp = torch.tensor([-1.0, -0.3, -2.0, -0.7, -1.5], dtype=torch.float64, requires_grad=True)
    won = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    loss = -logsigmoid(0.7 * (logp[won > 0][:, None] - logp[won == 0])).mean()
    (slope,) = torch.autograd.grad(loss, logp)
    torch.testing.assert_close(alignment(logp.detach(), won, 0.7), -slope)


def test_groups_without_a_success_or_a_failure_get_nothing():
    logp = torch.zeros(2, 4, dtype=torch.float64)
    assert (alignment(logp, torch.tensor([[0.0] * 4, [1.0] * 4])) == 0).all()
