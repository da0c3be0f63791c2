"""The stacked optimizers against torch.optim, replica by replica."""

import pytest
import torch

from testbed.policies.optimizers import OPTIMIZERS

PEERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


@pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 2e-6)], ids=["torch", "compiled"]
)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_each_replica_moves_as_under_torch_with_its_own_learning_rate(name, dtype, error):
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(3, 5, generator=generator, dtype=dtype)
    rates = torch.tensor([0.1, 0.01, 0.0], dtype=dtype)
    ours = OPTIMIZERS[name](theta)
    leaves = [row.clone().requires_grad_() for row in theta]
    peers = [PEERS[name]([leaf], lr=float(rate)) for leaf, rate in zip(leaves, rates, strict=True)]
    for _ in range(20):
        gradient = torch.randn(3, 5, generator=generator, dtype=dtype)
        theta = ours.step(theta, gradient, rates)
        for leaf, peer, row in zip(leaves, peers, gradient, strict=True):
            leaf.grad = row
            peer.step()
    torch.testing.assert_close(theta, torch.stack([leaf.detach() for leaf in leaves]), rtol=0, atol=error)
