"""GSPO: clip the length-normalized ratio of the whole sequence."""

import math

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import Base, log_geometric, log_token, sequence_advantage
from testbed.objectives import objective
from testbed.objectives.clipped.token_gradient import through_own_token


@objective(
    "gspo",
    source="Zheng et al. (2025), arXiv:2507.18071, Eq. 5-7",
    ratio="geometric",
    reads=("anchor", "adv"),
    scope="sequence",
    on_policy="1/T",
)
def gspo(logp_BT: Tensor, batch: Batch, *, eps_low: float = 3e-4, eps_high: float = 4e-4) -> Tensor:
    """L = -(1/T) min(s A, clip(s, 1 - eps_low, 1 + eps_high) A), s = (prod_t pi/anchor)^(1/T).

    The loss is spread evenly over the sequence's T tokens, so they sum to the sequence's loss. The clip is
    four orders of magnitude tighter than PPO's because s is a mean (Section 5.1).
    """
    return _shared(logp_BT, batch, "anchor", eps_low, eps_high)


def _shared(logp_BT: Tensor, batch: Batch, base: Base, eps_low: float, eps_high: float) -> Tensor:
    log_s_BT = log_geometric(logp_BT, batch, base=base)
    length_B1 = batch.mask_BT.sum(-1, keepdim=True)
    return -one_sided_clip(log_s_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high) * batch.adv_BT / length_B1


def _repeated(logp_BT: Tensor, batch: Batch, base: Base, eps_low: float, eps_high: float) -> Tensor:
    """Return the whole sequence's loss at every one of its tokens."""
    log_s_BT = log_geometric(logp_BT, batch, base=base)
    adv_B1 = sequence_advantage(batch)
    return -one_sided_clip(log_s_BT, adv_B1.expand_as(log_s_BT), 1 - eps_low, 1 + eps_high) * adv_B1


@objective(
    "gspo_token",
    source="Zheng et al. (2025), arXiv:2507.18071, Section 4.3",
    ratio="geometric",
    reads=("anchor", "adv"),
    scope="sequence",
    on_policy="1/T",
    detached=True,
)
def gspo_token(logp_BT: Tensor, batch: Batch, *, eps_low: float = 3e-4, eps_high: float = 4e-4) -> Tensor:
    """L = -(1/T) min(s_t A_t, clip(s_t) A_t), s_t = sg[s] pi/sg[pi], s = (prod_t pi/anchor)^(1/T).

    Equal to gspo, in value and gradient, if all tokens share one A. Otherwise each token here has weight s
    A_t / T, while gspo gives every token the mean of the unclipped advantages.
    """
    return _own_token(logp_BT, batch, eps_low, eps_high)


def _own_token(
    logp_BT: Tensor, batch: Batch, eps_low: float, eps_high: float, log_max: float = math.inf
) -> Tensor:
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    log_s_BT = through_own_token(log_geometric(logp_BT, batch, base="anchor"), log_u_BT).clamp(max=log_max)
    length_B1 = batch.mask_BT.sum(-1, keepdim=True)
    return -one_sided_clip(log_s_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high) * batch.adv_BT / length_B1


@objective.variant(
    "gspo@verl", source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/core_algos.py", detached=True
)
def gspo_verl(
    logp_BT: Tensor, batch: Batch, *, eps_low: float = 3e-4, eps_high: float = 4e-4, log_max: float = 10.0
) -> Tensor:
    """L = -(1/T) min(s_t A_t, clip(s_t) A_t), s_t = sg[s] pi/sg[pi], log s_t at most 10.

    gspo_token's form under the name gspo: a different gradient where A varies within a sequence, and no
    gradient above s = e^10. It always averages over a sequence's tokens first. The bounds are its scripts';
    its configuration starts from PPO's 0.2.
    """
    return _own_token(logp_BT, batch, eps_low, eps_high, log_max)


@objective.variant(
    "gspo@openrlhf",
    source="OpenRLHF/OpenRLHF 3c3be623 2026-08-13, openrlhf/models/loss.py",
    reads=("mu", "adv"),
)
def gspo_openrlhf(logp_BT: Tensor, batch: Batch, *, eps_low: float = 3e-4, eps_high: float = 4e-4) -> Tensor:
    """L = -(1/T) min(s A, clip(s, 1 - eps_low, 1 + eps_high) A), s = (prod_t pi/mu)^(1/T).

    With its engine correction on, the ratio is to the engine, where the paper uses the trainer's anchor:
    engine mismatch then uses up part of the clip range.
    """
    return _shared(logp_BT, batch, "mu", eps_low, eps_high)


@objective.variant(
    "gspo@areal", source="inclusionAI/AReaL 4aef98d8 2026-05-21, areal/trainer/ppo/actor.py", on_policy=1
)
def gspo_areal(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.4, eps_high: float = 0.4) -> Tensor:
    """L = -min(s A, clip(s, 1 - eps_low, 1 + eps_high) A) at every token, s = (prod_t pi/anchor)^(1/T).

    Every token has the full sequence loss, so a token weighs s, not s/T: averaged over all tokens, a sequence
    counts by its length. A is its mean advantage. The bounds are its example's.
    """
    return _repeated(logp_BT, batch, "anchor", eps_low, eps_high)


@objective.variant(
    "gspo@pipelinerl",
    source="ServiceNow/PipelineRL 58d3934 2026-06-19, pipelinerl/finetune/rl/__init__.py",
    reads=("mu", "adv"),
    on_policy=1,
)
def gspo_pipelinerl(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2) -> Tensor:
    """L = -min(s A, clip(s, 1 - eps_low, 1 + eps_high) A) at every token, s = (prod_t pi/mu)^(1/T).

    Deliberately length-proportional: the sequence's loss times T, summed and divided by the batch size. The
    ratio is to the engine, the bounds are PPO's, A is the sequence's mean advantage.
    """
    return _repeated(logp_BT, batch, "mu", eps_low, eps_high)
