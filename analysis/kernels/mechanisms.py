"""Worlds that isolate one mechanism each: maximization bias, post-decision states, compounding error."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.arrays import Floats
from envs.checks import check_distributions
from envs.finite_mdp import FiniteMDP

ACTIONS = 4
"""Actions of the tightrope."""


def lot_sizing(
    *,
    capacity: int = 10,
    largest_order: int = 4,
    demand_K: ArrayLike = (0.2, 0.2, 0.2, 0.2, 0.2),
    price: float = 2.0,
    holding_cost: float = 0.1,
) -> tuple[FiniteMDP, NDArray[np.int64]]:
    """Inventory s, order a, then random demand: the world, and the post-decision stock y = min(s + a,
    capacity), [S, A].

    reward = price sold - (y - s) - holding_cost s', s' = y - sold; 20 steps. The first step is deterministic
    and the second depends on y alone: P(s' | s, a) = P(s' | y). demand_K[k] = P(demand = k).
    Source: the two-step structure of PDPPO (2025); Powell (2011), section 4.6, for post-decision states.
    """
    law_K = np.asarray(demand_K, np.float64)
    check_distributions("demand_K", law_K, "Give the chance of each demand, from 0 on.")
    stock_S = np.arange(capacity + 1)
    post_SA = np.minimum(stock_S[:, None] + np.arange(largest_order + 1), capacity)
    after_KS = np.zeros((capacity + 1, capacity + 1))
    for demand, chance in enumerate(law_K):
        np.add.at(after_KS, (stock_S, np.maximum(stock_S - demand, 0)), chance)
    # Sold is y - s', so terms in s' are a bonus of the next state.
    world = FiniteMDP(
        transition_SAS=after_KS[post_SA],
        reward_SA=price * post_SA - 1.0 * (post_SA - stock_S[:, None]),
        bonus_S=np.asarray(-(price + holding_cost) * stock_S, dtype=np.float64),
        start_S=np.eye(capacity + 1)[0],
        horizon=20,
        discount=0.9,
    )
    return world, post_SA


def tightrope(*, contexts: int = 8, recoverable: bool = True, horizon: int = 16) -> tuple[FiniteMDP, Floats]:
    """A rope where every context needs a specific action, and the ground beside it: the world, and the expert
    [S, A].

    State c is context c on the rope (pays 1 a step), state contexts + c is the same beside it. The expert's
    action, never 0, stays on or returns to the rope (from beside it only if `recoverable`); others lead
    beside it. Contexts are new at every step, c with mass proportional to 1/(c + 1), so few demonstrations
    miss the rare ones. Source: the T^2 example of Ross & Bagnell (2010), theorem 2.1, with contexts that can
    be missed.
    """
    right_S = np.random.default_rng(0).integers(1, ACTIONS, size=2 * contexts)
    expert_SA = np.eye(ACTIONS)[right_S]
    law_K = 1.0 / np.arange(1, contexts + 1)
    law_K = law_K / law_K.sum()
    on_S, off_S = np.append(law_K, np.zeros(contexts)), np.append(np.zeros(contexts), law_K)
    transition_SAS = np.broadcast_to(off_S, (2 * contexts, ACTIONS, 2 * contexts)).copy()
    states = np.arange(2 * contexts if recoverable else contexts)
    transition_SAS[states, right_S[states]] = on_S
    return FiniteMDP(
        transition_SAS=transition_SAS,
        reward_SA=np.repeat(np.arange(2 * contexts) < contexts, ACTIONS).reshape(-1, ACTIONS).astype(float),
        start_S=on_S,
        horizon=horizon,
    ), expert_SA
