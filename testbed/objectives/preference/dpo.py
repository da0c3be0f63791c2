"""DPO, IPO and online DPO: classify pairs with a difference of log-ratios as the logit."""

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import logsigmoid

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.ratios import log_token
from testbed.objectives import objective
from testbed.objectives.preference.pairs import differences, extreme_pairs, share_pairs, unequal_pairs


def _sigmoid_loss(margin_BB: Tensor, beta: float) -> Tensor:
    return -logsigmoid(beta * margin_BB)


def _squared_loss(margin_BB: Tensor, beta: float) -> Tensor:
    return (margin_BB - 1 / (2 * beta)).square()


LOSSES: dict[str, Callable[[Tensor, float], Tensor]] = {"dpo": _sigmoid_loss, "ipo": _squared_loss}


def _margin(logp_BT: Tensor, batch: Batch) -> Tensor:
    """Return log W_w - log W_l of all pairs, W = prod_t pi/ref; [..., B, B]."""
    return differences(log_token(logp_BT, batch, base="ref").sum(-1))


@objective(
    "dpo",
    source="Rafailov et al. (2023), arXiv:2305.18290, Eq. 7",
    on_policy=None,
    ratio="sequence",
    reads=("ref", "reward", "group"),
    scope="group",
)
def dpo(logp_BT: Tensor, batch: Batch, *, beta: float = 0.1) -> Tensor:
    """L = -(1/T) log sigmoid(beta (log W_w - log W_l)), W = prod_t pi/ref, w preferred over l.

    Every pair of a group with unequal rewards counts; the larger reward is preferred. The paper's data has
    two responses per prompt. The group's loss is the mean over its pairs, carried by both sequences when G =
    2; equal rewards give no loss. Spread evenly over the T tokens; aggregate with constant, length 1. mu is
    not read: with labels from a Bradley-Terry model the sampler changes the weights of the pairs but not the
    optimum, ref exp(r / beta) / Z.
    """
    return share_pairs(_sigmoid_loss(_margin(logp_BT, batch), beta), unequal_pairs(batch), batch)


@objective(
    "ipo",
    source="Azar et al. (2023), arXiv:2310.12036, Eq. 17",
    on_policy=None,
    ratio="sequence",
    reads=("ref", "reward", "group"),
    scope="group",
)
def ipo(logp_BT: Tensor, batch: Batch, *, beta: float = 0.1) -> Tensor:
    """L = (1/T) (log W_w - log W_l - 1/(2 beta))^2, W = prod_t pi/ref, w preferred over l.

    Pairs and shares as in dpo. beta is the paper's tau; 0.1 is the value of TRL and of asynchronous online
    DPO (arXiv:2410.18252).
    """
    return share_pairs(_squared_loss(_margin(logp_BT, batch), beta), unequal_pairs(batch), batch)


@objective.variant(
    "ipo@trl",
    source="huggingface/trl f2cd5771 2026-07-24, trl/trainer/dpo_trainer.py, loss_type ipo",
    ratio="geometric",
)
def ipo_trl(logp_BT: Tensor, batch: Batch, *, beta: float = 0.1) -> Tensor:
    """L = (1/T) (log s_w - log s_l - 1/(2 beta))^2, log s = (1/T) sum_t log pi/ref, w preferred over l.

    Each log-ratio is a mean over its response's tokens; the paper prints a sum. The target 1/(2 beta) is then
    per token, so T times farther away. TRL states that the paper's authors ran this form.
    """
    length_B = batch.mask_BT.sum(-1)
    margin_BB = differences(log_token(logp_BT, batch, base="ref").sum(-1) / length_B)
    return share_pairs(_squared_loss(margin_BB, beta), unequal_pairs(batch), batch)


@objective(
    "online_dpo",
    source="Guo et al. (2024), arXiv:2402.04792; Noukhovitch et al. (2024), arXiv:2410.18252",
    on_policy=None,
    ratio="sequence",
    reads=("ref", "reward", "group"),
    scope="group",
)
def online_dpo(logp_BT: Tensor, batch: Batch, *, beta: float = 0.1, loss: str = "dpo") -> Tensor:
    """L = -(1/T) log sigmoid(beta (log W_w - log W_l)), W = prod_t pi/ref, w best and l worst of the group.

    The papers sample two responses. In a larger group only the best and the worst form a pair, which is our
    choice; with ties every best meets every worst, averaged. Without a gap in reward there is no loss. loss
    "ipo" uses IPO's square. Spread evenly over the T tokens; aggregate with constant, length 1. mu is not
    read: stale pairs are used uncorrected.
    """
    if loss not in LOSSES:
        raise unknown("loss of pairs", loss, LOSSES)
    return share_pairs(LOSSES[loss](_margin(logp_BT, batch), beta), extreme_pairs(batch), batch)
