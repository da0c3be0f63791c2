"""The stacked optimizers against torch.optim, replica by replica."""

import pytest
import torch
from support.refusals import refuses

from testbed.config.run import Run
from testbed.execution import preflight
from testbed.policies.optimizers import build_optimizer

PEERS = {
    "sgd": ({}, torch.optim.SGD, {}),
    "adam": ({}, torch.optim.Adam, {}),
    "adam with other arguments": (
        {"eps": 1e-3, "beta2": 0.8, "beta1": 0.5}, torch.optim.Adam, {"betas": (0.5, 0.8), "eps": 1e-3},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 2e-6)], ids=["torch", "compiled"]
)
@pytest.mark.parametrize("name", PEERS)
def test_each_replica_moves_as_under_torch_with_its_own_learning_rate(name, dtype, error):
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(3, 5, generator=generator, dtype=dtype)
    rates = torch.tensor([0.1, 0.01, 0.0], dtype=dtype)
    args, peer, more = PEERS[name]
    ours = build_optimizer(name.split()[0], args, theta)
    leaves = [row.clone().requires_grad_() for row in theta]
    peers = [peer([leaf], lr=float(rate), **more) for leaf, rate in zip(leaves, rates, strict=True)]
    for _ in range(20):
        gradient = torch.randn(3, 5, generator=generator, dtype=dtype)
        theta = ours.step(theta, gradient, rates)
        for leaf, peer, row in zip(leaves, peers, gradient, strict=True):
            leaf.grad = row
            peer.step()
    torch.testing.assert_close(theta, torch.stack([leaf.detach() for leaf in leaves]), rtol=0, atol=error)


@pytest.mark.parametrize(("optimizer", "given", "said"), [
    ("sgd", ("beta1", 0.5), "optimizer 'sgd' takes no arguments, but optimizer_args has 'beta1'"),
    ("adam", ("beta3", 0.5), "Unknown argument of optimizer 'adam' 'beta3'. Did you mean 'beta2'"),
    ("adam", ("beta1", 1), "beta1 1, beta2 0.999 and eps 1e-08; expected betas from 0 to below 1"),
    ("adam", ("eps", 0.0), "eps 0; expected betas from 0 to below 1 and a finite eps above 0"),
    ("adam", ("eps", float("inf")), "and eps inf; expected betas"),
    ("adam", ("beta2", "half"), "optimizer_args.beta2 is 'half', expected a number"),
    ("adam", ("beta1", False), "optimizer_args.beta1 is False, expected a number"),
])  # fmt: skip
def test_arguments_that_an_optimizer_cannot_have_are_refused_before_a_run(optimizer, given, said):
    refuses(said, preflight.check_arguments, [Run(optimizer=optimizer, optimizer_args=(given,))])
