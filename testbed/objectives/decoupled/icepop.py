"""IcePop: weigh a token by the engine mismatch inside a window; drop it outside."""

import math
from functools import partial

from testbed.objectives.decoupled.correction import TOKEN_MISMATCH, decoupled, in_window


@decoupled(
    "icepop",
    source="Ling Team (2025), arXiv:2510.18855",
    weight=TOKEN_MISMATCH,
    keep=partial(in_window, level="token"),
    defaults={"low": 0.5, "high": 5.0, "c": math.inf},
)
def icepop() -> None:
    """L = -sg[d 1[low <= d <= high]] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), d = anchor/mu.

    u = pi/anchor; `mis` at token level. The window is verl's, NeMo-RL's reference and OpenRLHF's; the paper
    itself could not be read. verl and NeMo-RL divide by all tokens. c: dual clip, u <= c for A < 0; off by
    default.
    """
