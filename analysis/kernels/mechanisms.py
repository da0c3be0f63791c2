"""A rope that isolates compounding error."""

import numpy as np

from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP

ACTIONS = 4
"""Actions of the tightrope."""


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
