"""CTPO: clip the cumulative ratio in a log window that widens with the position."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_token
from testbed.objectives import objective
from testbed.objectives.clipped.token_gradient import through_own_token


@objective(
    "ctpo", source="CTPO (2026), arXiv:2605.07331; horizon-llm/CTPO acc40211 2026-06-24, core_algos.py",
    ratio="prefix", reads=("anchor", "adv"), scope="sequence", detached=True,
)  # fmt: skip
def ctpo(
    logp_BT: Tensor,
    batch: Batch,
    *,
    b_low: float = 0.025,
    b_high: float = 0.05,
    b_c: float = 0.05,
    p: float = 0.5,
) -> Tensor:
    """L = -min(R A, clip(R, e^(-b_low n^p), e^(b_high n^p)) A), R = sg[u_1...u_t] pi/sg[pi], u = pi/anchor.

    n counts the tokens under the mask up to this one, from 1; only the current token has a gradient. For A <
    0 a second bound e^(b_c n^p) clips above as well, so with b_c = b_high negatives are clipped on both sides
    and positives only above. p = 1/2 is the growth of a random walk. Constants are those of the authors'
    script (their dataclass has p = 0, which does not run); whether the paper states them could not be
    verified. Aggregates with token_mean.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    log_r_BT = through_own_token(log_u_BT.cumsum(-1), log_u_BT)
    return _windowed(log_r_BT, batch, b_low, b_high, b_c, p)


def _windowed(log_r_BT: Tensor, batch: Batch, b_low: float, b_high: float, b_c: float, p: float) -> Tensor:
    # Before the first token n is 0 and 0^p may be infinite; no loss is read there.
    reach_BT = batch.mask_BT.cumsum(-1).clamp(min=1).to(log_r_BT.dtype) ** p
    low_BT, high_BT, dual_BT = ((b * reach_BT).exp() for b in (-b_low, b_high, b_c))
    return -one_sided_clip(log_r_BT, batch.adv_BT, low_BT, high_BT, dual_BT) * batch.adv_BT


@objective.variant("ctpo@author", source="horizon-llm/CTPO acc40211 2026-06-24, core_algos.py")
def ctpo_author(
    logp_BT: Tensor,
    batch: Batch,
    *,
    b_low: float = 0.025,
    b_high: float = 0.05,
    b_c: float = 0.05,
    p: float = 0.5,
    log_clamp: float = 20.0,
    log_max: float = 10.0,
) -> Tensor:
    """L = ctpo with every log u clamped to +-20 before the sum, and log R to at most 10.

    One token can move the prefix ratio by e^20 at most, so a prefix recovers sooner. The second clamp matters
    only to windows wider than the defaults.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    log_prefix_BT = log_u_BT.clamp(-log_clamp, log_clamp).cumsum(-1)
    log_r_BT = through_own_token(log_prefix_BT, log_u_BT).clamp(max=log_max)
    return _windowed(log_r_BT, batch, b_low, b_high, b_c, p)


@objective.variant(
    "ctpo@author-geomean",
    source="horizon-llm/CTPO acc40211 2026-06-24, core_algos.py ('cum-token-geomean-la')",
)
def ctpo_author_geomean(
    logp_BT: Tensor,
    batch: Batch,
    *,
    b_low: float = 0.025,
    b_high: float = 0.05,
    b_c: float = 0.05,
    p: float = -0.5,
    log_clamp: float = 20.0,
    log_max: float = 10.0,
) -> Tensor:
    """L = ctpo with R = (u_1...u_t)^(1/t) and windows e^(-b_low n^-1/2), e^(b_high n^-1/2) that narrow.

    The mean of a random walk's steps shrinks as n^-1/2, so p = -1/2. The ratio is length-normalized but the
    weight is not: a token has R, not R/t. Clamps as in ctpo@author.
    """
    log_u_BT = log_token(logp_BT, batch, base="anchor")
    log_prefix_BT = log_u_BT.clamp(-log_clamp, log_clamp).cumsum(-1)
    count_BT = batch.mask_BT.cumsum(-1).clamp(min=1)
    log_r_BT = through_own_token(log_prefix_BT / count_BT, log_u_BT).clamp(max=log_max)
    return _windowed(log_r_BT, batch, b_low, b_high, b_c, p)
