"""PPO's clipped surrogate, which is also GRPO's."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_token
from testbed.objectives import objective


@objective(
    "ppo_clip",
    source="Schulman et al. (2017), arXiv:1707.06347, Eq. 7; Shao et al. (2024), arXiv:2402.03300, Eq. 3",
    reads=("anchor", "adv"),
)
def ppo_clip(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2) -> Tensor:
    """L = -min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor.

    Positive advantages are clipped only above, negative ones only below; clipped tokens have gradient 0.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    return -one_sided_clip(log_u_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high) * batch.adv_BT


@objective.variant(
    "ppo_clip@open-instruct", source="allenai/open-instruct e6c3044a 2026-08-20, open_instruct/grpo_utils.py"
)
def ppo_clip_open_instruct(
    logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.272
) -> Tensor:
    """L = -min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor, eps_high = 0.272.

    Wider above than in the paper: a rare token with A > 0 may grow further before it is clipped.
    """
    return ppo_clip(logp_BT, batch, eps_low=eps_low, eps_high=eps_high)


@objective.variant(
    "ppo_clip@pipelinerl",
    source="ServiceNow/PipelineRL 58d3934 2026-06-19, pipelinerl/finetune/rl/__init__.py",
    reads=("mu", "adv"),
)
def ppo_clip_pipelinerl(
    logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2
) -> Tensor:
    """L = -min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A), rho = pi/mu.

    The ratio is to the engine's log-probabilities, where the paper has the trainer's: one clip limits
    staleness and engine mismatch together. verl's bypass mode computes the same.
    """
    log_rho_BT = log_token(logp_BT, batch)
    return -one_sided_clip(log_rho_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high) * batch.adv_BT
