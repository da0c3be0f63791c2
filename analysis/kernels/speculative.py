"""Speculative decoding, enumerated: accepted draft tokens."""

from collections.abc import Sequence

import numpy as np

from envs.arrays import Floats
from testbed.errors import UserError


def acceptance(target_xV: Floats, draft_xV: Floats) -> Floats:
    """Return the probability that a drafted token is accepted, sum_v q min(1, p/q) = 1 - TV(p, q); [x].

    Source: Leviathan et al. (2023), arXiv:2211.17192, Theorem 3.5. Raises UserError for distributions of
    unequal vocabularies.
    """
    if target_xV.shape[-1] != draft_xV.shape[-1]:
        raise UserError(
            f"the target has {target_xV.shape[-1]} tokens and the draft {draft_xV.shape[-1]}: a draft of "
            "another vocabulary cannot be accepted. Give both the same."
        )
    found: Floats = np.minimum(target_xV, draft_xV).sum(-1)
    return found


def accepted_length(target_TLV: Sequence[Floats], draft_TLV: Sequence[Floats]) -> float:
    """Return the expected number of leading drafted tokens of a block that are accepted.

    target_TLV, draft_TLV: distributions after every prefix of t tokens, [V^t, V] for t = 0 .. T - 1, prefixes
    in lexicographic order; a prefix of accepted tokens has as weight the product of min(p, q).
    """
    reach_L, total = np.ones(1), 0.0
    for target_LV, draft_LV in zip(target_TLV, draft_TLV, strict=True):
        acceptance(target_LV, draft_LV)  # refuses unequal vocabularies
        reach_L = (reach_L[:, None] * np.minimum(target_LV, draft_LV)).ravel()
        total += float(reach_L.sum())
    return total
