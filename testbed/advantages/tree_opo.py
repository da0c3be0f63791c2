"""Tree-OPO: project rewards onto the order constraints that a tree of prefixes implies."""

import numpy as np
import torch
from torch import Tensor

from envs.arrays import Floats, Ints
from testbed.advantages import advantage
from testbed.advantages.grouped import group_mean
from testbed.data.groups import group_max, group_size, group_sum
from testbed.data.signals import Signals
from testbed.errors import UserError


@advantage(
    "tree_opo", source="Huang et al. (2025), Tree-OPO, arXiv:2509.09284; from secondary notes",
    needs=("parent_B",), scope="group",
)  # fmt: skip
def tree_opo(signals: Signals, *, delta: float = 0.01, success: float = 0.5) -> Tensor:
    """A = the point nearest to R with sum A = 0, |A|^2 <= G and A_i + delta <= A_j for the pairs (i, j).

    (i, j): response j continues a prefix of response i (parent_B, over any number of steps, within the
    group), i failed (R < success) and j succeeded. The paper also orders siblings; its rule could not be
    verified and is omitted. With rewards 0 and 1 no constraint binds and this is group_mean, because such
    pairs already differ by 1. Groups with a binding constraint are solved singly, in float64 on the CPU.
    """
    adv_B = group_mean(signals)
    pair_BB = staged_pairs(signals, success)
    gap_BB = adv_B[..., None, :] - adv_B[..., :, None]
    broken_BB = pair_BB & (gap_BB < delta)
    long_B = group_sum(adv_B**2, signals.group_B) > group_size(adv_B, signals.group_B)
    broken_B = (broken_BB.any(-1) | broken_BB.any(-2) | long_B).to(adv_B.dtype)
    solve_B = group_max(broken_B, signals.group_B) > 0
    for *lead, first in solve_B.nonzero().tolist():
        row = tuple(lead)
        members = (signals.group_B[row] == signals.group_B[row][first]).nonzero().squeeze(-1)
        if first != int(members[0]):
            continue
        pairs = pair_BB[row][members][:, members].nonzero().cpu().numpy()
        solved = project(adv_B[row][members].double().cpu().numpy(), pairs, delta)
        adv_B[row][members] = torch.from_numpy(solved).to(adv_B)
    return adv_B


def staged_pairs(signals: Signals, success: float) -> Tensor:
    """Mark (i, j) with a failed ancestor and a successful descendant of a group; bool [..., B, B]."""
    parent_B = signals.require("parent_B", "tree_opo")
    count = parent_B.shape[-1]
    below_BB = parent_B[..., None, :] == torch.arange(count, device=parent_B.device)[:, None]
    # Each squaring doubles the number of generations that are bridged.
    for _ in range(max(count - 1, 1).bit_length()):
        square_BB = below_BB.float() @ below_BB.float()
        below_BB = below_BB | (square_BB > 0)
    if bool(below_BB.diagonal(dim1=-2, dim2=-1).any()) or bool((parent_B >= count).any()):
        raise UserError(
            f"parent_B = {parent_B.tolist()} is not a forest; expected for every sequence the index of "
            f"its parent, below {count}, or -1, without cycles."
        )
    won_B, group_B = signals.reward_B >= success, signals.group_B
    same_BB = group_B[..., :, None] == group_B[..., None, :]
    return below_BB & ~won_B[..., :, None] & won_B[..., None, :] & same_BB


def project(center: Floats, pairs: Ints, delta: float) -> Floats:
    """Return the point nearest to a centered vector with every pair delta apart, within |a|^2 <= n.

    Without the ball: least-distance programming (Lawson & Hanson, 1974, Chapter 23). A binding ball with
    multiplier m moves the target to center / (1 + m).
    """
    from scipy.optimize import brentq

    free = ordered(center, pairs, delta)
    if free @ free <= len(center):
        return free

    def excess(shrink: float) -> float:
        point = ordered(center * shrink, pairs, delta)
        return float(point @ point) - len(center)

    if excess(0.0) > 0:
        raise UserError(f"tree_opo cannot keep pairs delta={delta} apart within |A|^2 <= G; lower delta.")
    return ordered(center * float(brentq(excess, 0.0, 1.0, xtol=1e-15)), pairs, delta)


def ordered(center: Floats, pairs: Ints, delta: float) -> Floats:
    """Return the point nearest to center with a_i + delta <= a_j for every pair; its sum stays."""
    from scipy.optimize import nnls

    if len(pairs) == 0:
        return center
    matrix = np.zeros((len(pairs), len(center)))
    matrix[np.arange(len(pairs)), pairs[:, 1]] += 1
    matrix[np.arange(len(pairs)), pairs[:, 0]] -= 1
    missing = delta - matrix @ center
    if (missing <= 0).all():
        return center
    target = np.zeros(len(center) + 1)
    target[-1] = 1
    system = np.vstack([matrix.T, missing])
    dual, _ = nnls(system, target)
    residual = system @ dual - target
    move: Floats = -residual[:-1] / residual[-1]
    return center + move
