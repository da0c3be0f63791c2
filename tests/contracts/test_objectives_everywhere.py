"""What all objectives must survive: random ragged stacks of batches; and code without loops over data."""

import ast
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.data.batch import Batch
from testbed.losses.aggregate import AGGREGATIONS, aggregate
from testbed.objectives import objective

FOLDER = Path(__file__).parents[2] / "testbed" / "objectives"
REPLICAS = 3
# An axis suffix (logp_BT, size_K), or what only a tensor or a list as long as one is asked for.
DATA = re.compile(
    r"_[A-Z][A-Z0-9]*\b|\.shape|\.size\(|\.numel|\.tolist|\.unbind|\.item|\.split|\.chunk|\blen\("
)


def random_stack(seed: int, rows: int, width: int, far: float, dtype) -> tuple[torch.Tensor, Batch]:
    """Return logp [3, B, T] and a batch with holes in its mask, uneven groups, turns and all origins."""
    draw = torch.Generator().manual_seed(seed)
    shape = (REPLICAS, rows, width)

    def noise(scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(shape, generator=draw)

    def integers(high: int) -> torch.Tensor:
        return torch.randint(0, high, shape[:-1], generator=draw)

    mask = torch.rand(shape, generator=draw) < 0.7
    mask[..., 0] |= ~mask.any(-1)
    mu = -noise().abs()
    batch = Batch(
        logp_mu_BT=mu.to(dtype),
        adv_BT=(noise()[..., :1] * (integers(4)[..., None] > 0)).expand(shape).to(dtype), mask_BT=mask,
        reward_B=integers(2).to(dtype), group_B=integers(max(rows // 2, 1)),
        logp_anchor_BT=(mu + noise(far)).to(dtype), logp_ref_BT=(mu + noise(far)).to(dtype),
        turn_BT=(torch.rand(shape, generator=draw) < 0.3).int().cumsum(-1).clamp(max=width - 1),
        origin_B=integers(3),
    )  # fmt: skip
    return (mu + noise(far)).to(dtype), batch


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 9), width=st.integers(1, 12),
    far=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_losses_and_gradients_of_random_ragged_stacks_are_finite(seed, rows, width, far, dtype):
    logp, batch = random_stack(seed, rows, width, far, dtype)
    for name in objective:
        leaf = logp.clone().requires_grad_()
        loss_BT = objective[name].function(leaf, batch)
        assert loss_BT.shape == logp.shape, name
        total = sum(aggregate(loss_BT, batch.mask_BT, how) for how in AGGREGATIONS)
        assert total.shape == (REPLICAS,)
        assert torch.isfinite(total).all(), name
        (gradient,) = torch.autograd.grad(total.sum(), leaf)
        assert torch.isfinite(gradient).all(), name
        assert (gradient[~batch.mask_BT] == 0).all(), name


def loops_over_data(source: str) -> list[str]:
    """Return every loop whose length may depend on the batch: all while loops, and for loops over data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.While):
            found.append(f"line {node.lineno}: while")
        elif isinstance(node, ast.For | ast.comprehension) and not isinstance(
            node.iter, ast.Tuple | ast.List
        ):
            over = ast.unparse(node.iter)
            if DATA.search(over):
                found.append(f"line {node.iter.lineno}: for … in {over}")
    return found


LOSSES = sorted(path for path in FOLDER.rglob("*.py") if path.name not in ("outside.py", "with_settings.py"))
"""The two others check losses and read a table of them, and compute none."""


def test_no_loop_runs_over_tokens_or_sequences():
    found = {str(path.relative_to(FOLDER)): loops_over_data(path.read_text()) for path in LOSSES}
    assert {name: loops for name, loops in found.items() if loops} == {}


@pytest.mark.parametrize(
    "loop",
    ["for row in logp_BT: pass", "for t in range(logp.shape[-1]): pass",
     "x = [f(row) for row in mask.unbind(0)]", "for i in range(len(rewards)): pass",
     "while mean > tau: drop()"],
)  # fmt: skip
def test_the_scan_sees_loops_over_data(loop):
    assert loops_over_data(loop)


def test_the_scan_lets_loops_over_constants_pass():
    assert not loops_over_data("for x_BT in (logp_BT, mu_BT): pass\nx = [f(k) for k in range(3)]")
