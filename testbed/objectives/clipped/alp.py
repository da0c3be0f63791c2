"""ALP: a wide clip on the ratio of a perturbed policy to the sampler."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_ratio, log_token
from testbed.objectives import objective
from testbed.objectives.clipped.token_gradient import through_own_token


@objective(
    "alp",
    source="ALP (2026), arXiv:2603.19470; Chenluye99/Adaptive-Layerwise-Perturbation 0895e1d2, core_algos.py",
    reads=("mu", "adv"),
    max_weight="max(c, 1 + eps_high)",
)
def alp(
    logp_BT: Tensor,
    batch: Batch,
    *,
    level: str = "token",
    eps_low: float = 0.5,
    eps_high: float = 3.0,
    c: float = 3.0,
) -> Tensor:
    """L = -min(R A, clip(R, 1 - eps_low, 1 + eps_high) A), for A < 0 at least c A; R = perturbed pi / mu.

    The loss alone: the caller adds the noise to the hidden states and the regularizer to the loss; in
    training `policy_args.perturb` does both. level: token, prefix (the code's cum-token), sequence or
    geometric. Above token level R is sg[ratio] pi/sg[pi], so each token has the gradient of its log pi only.
    Bounds [0.5, 4] and c = 3 are those of the authors' code: negatives are clipped at 3, before 4. Its clamp
    of log R to +-20 lies beyond the bounds and is omitted.
    """
    log_r_BT = log_token(logp_BT, batch)
    if level != "token":
        log_r_BT = through_own_token(log_ratio(level, logp_BT, batch), log_r_BT)
    return -one_sided_clip(log_r_BT, batch.adv_BT, 1 - eps_low, 1 + eps_high, c) * batch.adv_BT
