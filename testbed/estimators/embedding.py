"""Marginalized weights over an action embedding."""

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats
from testbed.errors import UserError
from testbed.estimators import Estimate, estimator
from testbed.estimators.logged_rounds import Logged, weighted


def embedding_log_weight(
    *, embedding: ArrayLike, action_dist: ArrayLike, behavior_dist: ArrayLike, p_e_a: ArrayLike
) -> Floats:
    """log of p(e|x, pi) / p(e|x, mu) = sum_a pi(a|x) p(e|a) / sum_a mu(a|x) p(e|a), [..., N].

    Args:
        embedding: logged embeddings, integers [..., N].
        action_dist: pi [..., N, A].
        behavior_dist: mu [..., N, A].
        p_e_a: [A, E], rows sum to 1.

    Raises UserError when mu never shows a logged embedding.
    """
    embedding_N, p_AE = np.asarray(embedding), np.asarray(p_e_a, dtype=np.float64)
    if embedding_N.min() < 0 or embedding_N.max() >= p_AE.shape[-1]:
        raise UserError(
            f"embedding is {embedding_N.min()} to {embedding_N.max()}; p_e_a has {p_AE.shape[-1]}."
        )
    seen_NA = p_AE.T[embedding_N]
    target_N = np.einsum("...a,...a->...", np.asarray(action_dist, dtype=np.float64), seen_NA)
    behavior_N = np.einsum("...a,...a->...", np.asarray(behavior_dist, dtype=np.float64), seen_NA)
    if not (behavior_N > 0).all():
        index = [int(i) for i in np.argwhere(~(behavior_N > 0))[0]]
        raise UserError(
            f"behavior_dist never shows the embedding logged in round {index}: check p_e_a against the log."
        )
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(target_N) - np.log(behavior_N))


@estimator(
    "mips", source="Saito & Joachims (2022), Off-policy evaluation for large action spaces via embeddings",
    family="bandit", linear=True, needs=("embedding_log_w_N",),
)  # fmt: skip
def mips(data: Logged) -> Estimate:
    """(1/N) sum p(e|x, pi)/p(e|x, mu) r.

    Unbiased when the reward depends on the action through e alone; then n (Var IPS - Var MIPS) =
    E[E[r^2|x, e] Var_{a|x, e} w]. Else the bias is
    E sum_{a<b} mu(a|x, e) mu(b|x, e) [q(x, a, e) - q(x, b, e)] [w(x, b) - w(x, a)].
    """
    (embedding_log_w_N,) = data.need("mips", "embedding_log_w_N")
    with np.errstate(over="ignore"):
        return weighted(data, np.exp(embedding_log_w_N))
