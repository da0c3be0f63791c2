"""Distillation on tokens of the student, and on tokens of another policy."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_token
from testbed.objectives import objective
from testbed.objectives.terms.kl_estimators import kl_term


@objective(
    "distillation",
    source="Agarwal et al. (2024), arXiv:2306.13649 (GKD); Lu et al. (2025), "
    "thinkingmachines.ai/blog/on-policy-distillation; arXiv:2605.12227 (dGRPO, abstract only)",
    reads=("ref",),
    on_policy=None,
    detached=True,
)
def distillation(
    logp_BT: Tensor,
    batch: Batch,
    *,
    estimator: str = "k1",
    direction: str = "reverse",
    gradient: str = "score",
) -> Tensor:
    """L = sg[log(pi/ref)] log pi: a reward of log(ref/pi) for every token, where ref is the teacher.

    On samples of pi its expected gradient is that of KL(pi || teacher), per token. estimator, direction and
    gradient are kl_penalty's, so "forward" with k1 or k3 and "both" gives that of KL(teacher || pi). dGRPO is
    read as GRPO plus a multiple of this, from its abstract, which has no formula.
    """
    return kl_term(logp_BT, batch, estimator=estimator, direction=direction, base="ref", gradient=gradient)


@objective.variant(
    "distillation@tinker",
    source="thinking-machines-lab/tinker-cookbook 9dfcc3a2 2026-08-19, "
    "tinker_cookbook/distillation/train_on_policy.py",
    reads=("mu", "ref"),
    detached=False,
)
def distillation_tinker(logp_BT: Tensor, batch: Batch) -> Tensor:
    """L = (pi/mu) log(mu/ref), ref the teacher.

    The reward log(ref/mu) uses the sampler's log-probability in place of pi's and is weighed by pi/mu: equal
    on-policy; off-policy the reward is that of KL(mu || teacher), one update behind.
    """
    log_mu_over_ref_BT = log_token(batch.logp_mu_BT, batch, "ref")
    # Where sampler and teacher agree the reward is 0, even where pi/mu overflows.
    log_rho_BT = torch.where(log_mu_over_ref_BT != 0, log_token(logp_BT, batch), 0.0)
    return log_rho_BT.exp() * log_mu_over_ref_BT


@objective(
    "sft", source="behavior cloning: Pomerleau (1991), Neural Computation 3(1), 88-97", ratio="none",
    reads=(), on_policy=None,
)  # fmt: skip
def sft(logp_BT: Tensor, _batch: Batch) -> Tensor:
    """L = -log pi for every token.

    On tokens of a teacher its expected gradient is that of KL(teacher || pi). It ignores rewards and mu: use
    batches of demonstrations only, or select them by a mixture's origin.
    """
    return -logp_BT
