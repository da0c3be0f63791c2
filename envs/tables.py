"""The arrays of a finite MDP in the form of compiled loops: successor lists instead of dense rows."""

from typing import NamedTuple

import numpy as np

from envs.arrays import Bools, Floats, Ints

NOISE_KINDS = ("none", "bernoulli", "normal")

# Above every uniform in [0, 1): a row that ends here always yields a draw, despite rounding.
_CLOSED = 2.0


class Tables(NamedTuple):
    """One row per state-action pair, X = s * A + a; its successors are `next_XK[x, :count_X[x]]`.

    `mean_reward_X` is reward + E[bonus of the next state]; `noise` is an index into NOISE_KINDS.
    """

    next_XK: Ints
    probability_XK: Floats
    cumulative_XK: Floats
    count_X: Ints
    reward_X: Floats
    mean_reward_X: Floats
    bonus_S: Floats
    terminal_S: Bools
    start_S: Floats
    horizon: int
    discount: float
    noise: int
    noise_std_X: Floats


def running_sums(probability_xK: Floats) -> Floats:
    """Running sums along the last axis, for inverse-CDF draws; the last entry with mass and later ones get 2.

    The drawn index is the number of sums <= u, so an entry without mass is never drawn, for any u in [0, 1).
    """
    cumulative_xK = np.cumsum(probability_xK, axis=-1)
    has_mass_xK = probability_xK > 0.0
    mass_after_xK = np.logical_or.accumulate(has_mass_xK[..., ::-1], axis=-1)[..., ::-1]
    cumulative_xK[..., :-1][~mass_after_xK[..., 1:]] = _CLOSED
    cumulative_xK[..., -1] = _CLOSED
    return cumulative_xK


def build_tables(
    transition_SAS: Floats,
    reward_SA: Floats,
    start_S: Floats,
    terminal_S: Bools,
    bonus_S: Floats,
    *,
    horizon: int,
    discount: float,
    noise: str,
    noise_std: float | Floats,
) -> Tables:
    """The same world with each dense transition row packed to its support, in ascending state order."""
    transition_XS = transition_SAS.reshape(-1, transition_SAS.shape[-1])
    support_XS = transition_XS > 0.0
    count_X = support_XS.sum(axis=-1)
    # A stable sort on "not in the support" moves the supported states to the front in ascending order.
    next_XK = np.argsort(~support_XS, axis=-1, kind="stable")[:, : int(count_X.max())]
    probability_XK = np.take_along_axis(transition_XS, next_XK, axis=-1)
    return Tables(
        next_XK=np.ascontiguousarray(next_XK, dtype=np.int64),
        probability_XK=np.ascontiguousarray(probability_XK),
        cumulative_XK=running_sums(probability_XK),
        count_X=count_X.astype(np.int64),
        reward_X=reward_SA.flatten(),
        mean_reward_X=reward_SA.flatten() + transition_XS @ bonus_S,
        bonus_S=bonus_S.copy(),
        terminal_S=terminal_S.copy(),
        start_S=start_S.copy(),
        horizon=int(horizon),
        discount=float(discount),
        noise=NOISE_KINDS.index(noise),
        noise_std_X=np.broadcast_to(noise_std, reward_SA.shape).astype(np.float64).ravel(),
    )
