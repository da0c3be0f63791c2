"""The privacy of the private transformer: what its noise spends, and what one record may move."""

import math

import numpy as np
import pytest
import torch

from analysis.experiments.teachers import private_networks as private


@pytest.mark.parametrize(("sigma", "share", "order"), [(1.0, 0.1, 2), (2.0, 0.25, 5), (1.03, 1 / 64, 8)])
def test_the_divergence_of_a_noisy_sampled_step_is_the_integral_that_defines_it(sigma, share, order):
    x_X = np.linspace(-60.0, 60.0, 240_001)
    plain_X = np.exp(-(x_X**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
    ratio_X = 1 - share + share * np.exp((2 * x_X - 1) / (2 * sigma**2))
    integral = (plain_X * ratio_X**order).sum() * (x_X[1] - x_X[0])
    assert private.divergence(sigma, share, order) == pytest.approx(
        math.log(integral) / (order - 1), rel=1e-9
    )


def test_the_noise_spends_all_of_epsilon_and_no_more():
    assert private.EPSILON - 1e-4 < private.spent(private.multiplier()) <= private.EPSILON


def test_no_record_moves_the_sum_by_more_than_the_clip_and_short_gradients_stay():
    gradient_RBP = torch.tensor([0.01, 3.0]).view(2, 1, 1) * torch.randn(
        2, 9, 30, generator=torch.manual_seed(5)
    )
    found = private.clipped(gradient_RBP)
    assert found.norm(dim=-1).max() <= private.CLIP * (1 + 1e-6)
    torch.testing.assert_close(found[0], gradient_RBP[0])


def test_a_record_s_gradient_is_that_of_its_own_loss():
    task, policy = private.built(8)
    theta_RP, teacher_RP = policy.initial([1]), private.built(24)[1].initial([1])
    prompt = torch.from_numpy(task.prompts(np.random.default_rng(2), 3))[None]
    token = torch.randint(0, 6, (1, 3, 4), generator=torch.manual_seed(3))
    each = private.record_gradients(theta_RP, teacher_RP, prompt, token, "data")
    leaf = theta_RP.clone().requires_grad_()
    loss = -policy.logp(leaf, prompt, token, torch.ones_like(token, dtype=torch.bool)).mean(-1).sum()
    torch.testing.assert_close(each.sum(1), torch.autograd.grad(loss, leaf)[0], rtol=1e-4, atol=1e-5)
