"""IcePop: weigh a token by the engine mismatch inside a window; drop it outside."""

import math
from functools import partial

from torch import Tensor

from testbed.data.batch import Batch
from testbed.objectives import objective
from testbed.objectives.decoupled.correction import in_window
from testbed.objectives.decoupled.mis import mis


@objective(
    "icepop",
    source="Ling Team (2025), arXiv:2510.18855",
    reads=("mu", "anchor", "adv"),
    keep=partial(in_window, level="token"),
)
def icepop(
    logp_BT: Tensor,
    batch: Batch,
    *,
    low: float = 0.5,
    high: float = 5.0,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    c: float = math.inf,
) -> Tensor:
    """L = -sg[d 1[low <= d <= high]] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), d = anchor/mu.

    u = pi/anchor; `mis` at token level. The window is verl's, NeMo-RL's reference and OpenRLHF's; the paper
    itself could not be read. verl and NeMo-RL divide by all tokens. c: dual clip, u <= c for A < 0; off by
    default.
    """
    return mis(logp_BT, batch, level="token", low=low, high=high, eps_low=eps_low, eps_high=eps_high, c=c)
