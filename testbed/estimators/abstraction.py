"""Abstract reward processes: a Markov reward chain on z = phi(s), from importance-weighted counts."""

import numpy as np

from envs.arrays import Floats, Ints
from testbed.errors import UserError
from testbed.estimators import Estimate, estimator
from testbed.estimators.episode_counts import ratio, tally, unflatten
from testbed.estimators.fqe import model_value
from testbed.estimators.trajectory_weights import LoggedEpisodes


@estimator(
    "star",
    source="Chaudhari et al. (2024), Abstract reward processes; gamma^t in the counts: "
    "docs/theory/density-ratios.md",
    family="trajectory",
    needs=("state_NT",),
)
def star(
    episodes: LoggedEpisodes,
    *,
    abstraction_S: Ints | None = None,
    c: int | None = None,
    discounted_counts: bool = True,
) -> Estimate:
    """eta (I - gamma P)^-1 R, the value of the chain on z = abstraction_S[s].

    P(z'|z) = sum k_t 1{z_t = z, z_{t+1} = z'} / sum k_t 1{z_t = z}, R(z) likewise of r_t, k_t = gamma^t times
    the product of the last c ratios rho_{t-c+1} … rho_t; eta: shares of z_0. The last logged step ends it.

    c: None uses all ratios; the value then tends to J for every abstraction. 0 uses none and gives the
        behavior policy's value. Values between trade bias for less variance (our reading of the paper's c).
    discounted_counts: False drops gamma^t; for gamma < 1 the limit is then not J in general.
    abstraction_S: labels 0, 1, …; None keeps every state separate. stderr and ess are NaN.
    """
    state_NT = episodes.demand("state_NT")
    label_S = np.arange(int(state_NT.max()) + 1) if abstraction_S is None else np.asarray(abstraction_S)
    shaped = label_S.ndim == 1 and len(label_S) > state_NT.max()
    if not shaped or label_S.dtype.kind not in "biu" or label_S.min() < 0:
        raise UserError(f"abstraction_S needs a label from 0 for each of {int(state_NT.max()) + 1} states.")
    if c is not None and c < 0:
        raise UserError(f"c is {c}, expected the number of ratios, 0 or more, or None for all.")
    weight_NT = recent_weights(episodes, c) * episodes.live_NT
    if discounted_counts:
        weight_NT = weight_NT * episodes.discount_T
    return model_value(_chain_value(episodes, label_S[state_NT], weight_NT, int(label_S.max()) + 1))


def _chain_value(episodes: LoggedEpisodes, label_NT: Ints, weight_NT: Floats, size: int) -> Floats:
    goes_on_NT = episodes.live_NT[..., 1:]
    lead = label_NT.shape[:-2]
    label_M, weight_M = label_NT.reshape(*lead, -1), weight_NT.reshape(*lead, -1)
    visits_Z = tally(label_M, size, weight_M)
    reward_Z = ratio(tally(label_M, size, weight_M * episodes.reward_NT.reshape(*lead, -1)), visits_Z)
    move_M = (label_NT[..., :-1] * size + label_NT[..., 1:]).reshape(*lead, -1)
    going_M = (weight_NT[..., :-1] * goes_on_NT).reshape(*lead, -1)
    moves_ZZ = unflatten(tally(move_M, size * size, going_M), (size, size))
    chain_ZZ = ratio(moves_ZZ, np.broadcast_to(visits_Z[..., None], moves_ZZ.shape))
    first_Z = tally(label_NT[..., 0], size, np.ones(())) / label_NT.shape[-2]
    try:
        value_Z = np.linalg.solve(np.eye(size) - episodes.gamma * chain_ZZ, reward_Z[..., None])[..., 0]
    except np.linalg.LinAlgError:
        raise UserError(
            f"With gamma {episodes.gamma:g} the abstract chain has no end: the weights of steps that ended "
            "an episode are 0. Take gamma below 1, a smaller c, or log more episodes."
        ) from None
    return np.asarray((first_Z * value_Z).sum(-1))


def recent_weights(episodes: LoggedEpisodes, c: int | None = None) -> Floats:
    """Product of the last c ratios, rho_{max(0, t-c+1)} … rho_t, [..., N, T]; of all with c = None."""
    if c is None or c >= episodes.steps:
        return episodes.weight_NT
    rho_NT, weight_NT = np.exp(episodes.log_rho_NT), np.ones_like(episodes.log_rho_NT)
    for back in range(c):
        weight_NT[..., back:] *= rho_NT[..., : episodes.steps - back]
    return weight_NT
