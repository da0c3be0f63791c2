"""DPO, IPO and online DPO: classify pairs with a difference of log-ratios as the logit."""

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor
from torch.nn.functional import logsigmoid

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.ratios import log_token
from testbed.objectives import objective
from testbed.objectives.preference.pairs import differences, extreme_pairs, share_pairs, unequal_pairs


def sigmoid_loss(margin_BB: Tensor, beta: float) -> Tensor:
    """DPO's loss of a margin."""
    return -logsigmoid(beta * margin_BB)


def squared_loss(margin_BB: Tensor, beta: float) -> Tensor:
    """IPO's loss of a margin."""
    return (margin_BB - 1 / (2 * beta)).square()


PairLoss: TypeAlias = Callable[[Tensor, float], Tensor]
LOSSES: dict[str, PairLoss] = {"dpo": sigmoid_loss, "ipo": squared_loss}


def every_pair(
    logp_BT: Tensor, batch: Batch, *, loss: PairLoss, beta: float, per_token: bool = False
) -> Tensor:
    """Return the losses of all pairs of a group with unequal rewards.

    per_token: log W is a mean over the response's tokens instead of their sum.
    """
    log_w_B = log_token(logp_BT, batch, base="ref").sum(-1)
    log_w_B = log_w_B / batch.mask_BT.sum(-1) if per_token else log_w_B
    return share_pairs(loss(differences(log_w_B), beta), unequal_pairs(batch), batch)


@objective(
    "online_dpo", source="Guo et al. (2024), arXiv:2402.04792; Noukhovitch et al. (2024), arXiv:2410.18252",
    on_policy=None, ratio="sequence", reads=("ref", "reward", "group"), scope="group",
)  # fmt: skip
def online_dpo(logp_BT: Tensor, batch: Batch, *, beta: float = 0.1, loss: str = "dpo") -> Tensor:
    """L = -(1/T) log sigmoid(beta (log W_w - log W_l)), W = prod_t pi/ref, w best and l worst of the group.

    The papers sample two responses. In a larger group only the best and the worst form a pair, which is our
    choice; with ties every best meets every worst, averaged. Without a gap in reward there is no loss. loss
    "ipo" uses IPO's square. Spread evenly over the T tokens; aggregate with constant, length 1. mu is not
    read: stale pairs are used uncorrected.
    """
    if loss not in LOSSES:
        raise unknown("loss of pairs", loss, LOSSES)
    log_w_B = log_token(logp_BT, batch, base="ref").sum(-1)
    return share_pairs(LOSSES[loss](differences(log_w_B), beta), extreme_pairs(batch), batch)
