"""Small Markov decision processes with known truth; every constructor returns a FiniteMDP."""

from collections.abc import Sequence

import numpy as np

from envs.arrays import Floats
from envs.catalog import world
from envs.finite_mdp import FiniteMDP


def _one_hot(states: int, index: int) -> Floats:
    return np.eye(states)[index]


@world("chain")
def chain(
    *, length: int = 6, slip: float = 0.1, lure: float = 0.05, horizon: int = 12, discount: float = 1.0
) -> FiniteMDP:
    """A corridor: walking right to its end pays 1 a step, staying at the left end pays a small lure.

    Actions: 0 left, 1 right; with probability `slip` a step goes the other way.
    """
    _at_least("length", length, 2)
    left = np.eye(length)[np.maximum(np.arange(length) - 1, 0)]
    right = np.eye(length)[np.minimum(np.arange(length) + 1, length - 1)]
    reward_SA = np.zeros((length, 2))
    reward_SA[0, 0], reward_SA[-1, 1] = lure, 1.0
    return FiniteMDP(
        transition_SAS=np.stack([(1 - slip) * left + slip * right, (1 - slip) * right + slip * left], axis=1),
        reward_SA=reward_SA,
        start_S=_one_hot(length, 0),
        horizon=horizon,
        discount=discount,
    )


FROZEN_LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")
_MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up


@world("grid-world")
def grid_world(
    *, layout: Sequence[str] = FROZEN_LAKE, slip: float = 2 / 3, horizon: int = 100, discount: float = 1.0
) -> FiniteMDP:
    """A slippery grid with holes: reaching the goal pays 1, the default is FrozenLake 4x4.

    `layout` rows use S start, F floor, H hole, G goal; holes and goals end the episode. Actions 0 left, 1
    down, 2 right, 3 up; with probability `slip` a step goes sideways, to either side equally often; walls
    block.
    """
    cells = "".join(layout)
    if len({len(row) for row in layout}) != 1 or not set(cells) <= set("SFHG") or "S" not in cells:
        raise ValueError(
            f"layout is {list(layout)!r}, expected rows of equal length made of S, F, H and G, with an S."
        )
    rows, columns = len(layout), len(layout[0])
    row_S, column_S = np.divmod(np.arange(rows * columns), columns)
    landing_SA = np.stack(
        [
            np.clip(row_S + down, 0, rows - 1) * columns + np.clip(column_S + right, 0, columns - 1)
            for down, right in _MOVES
        ],
        axis=1,
    )
    step_SAS = np.eye(rows * columns)[landing_SA]
    sideways_SAS = (np.roll(step_SAS, 1, axis=1) + np.roll(step_SAS, -1, axis=1)) / 2
    is_start_S = np.array([cell == "S" for cell in cells])
    return FiniteMDP(
        transition_SAS=(1 - slip) * step_SAS + slip * sideways_SAS,
        reward_SA=np.zeros((rows * columns, 4)),
        # Paid on arrival: on a slippery floor the reward depends on the cell actually reached.
        bonus_S=np.array([float(cell == "G") for cell in cells]),
        start_S=is_start_S / is_start_S.sum(),
        terminal_S=np.array([cell in "HG" for cell in cells]),
        horizon=horizon,
        discount=discount,
    )


@world("garnet")
def garnet(
    *,
    states: int = 16,
    actions: int = 4,
    branching: int = 3,
    seed: int = 0,
    horizon: int = 16,
    discount: float = 1.0,
    noise_std: float = 0.0,
) -> FiniteMDP:
    """A random MDP: each action leads to one of a few random states and pays a random normal mean reward.

    The `branching` next states are distinct, their probabilities the gaps between uniform cuts of [0, 1];
    starts are uniform. Source: Archibald et al. (1995), "On the generation of Markov decision processes".
    """
    if not 1 <= branching <= states:
        raise ValueError(f"branching is {branching}, expected 1 to the number of states, {states}.")
    rng = np.random.default_rng(seed)
    cuts_SAK = np.sort(rng.random((states, actions, branching - 1)), axis=-1)
    gaps_SAK = np.diff(cuts_SAK, axis=-1, prepend=0.0, append=1.0)
    chosen_SAK = np.argsort(rng.random((states, actions, states)), axis=-1)[..., :branching]
    transition_SAS = np.zeros((states, actions, states))
    np.put_along_axis(transition_SAS, chosen_SAK, gaps_SAK, axis=-1)
    return FiniteMDP(
        transition_SAS=transition_SAS, reward_SA=rng.normal(size=(states, actions)),
        start_S=np.full(states, 1.0 / states), horizon=horizon, discount=discount,
        noise="normal" if noise_std > 0 else "none", noise_std=noise_std,
    )  # fmt: skip


@world("baird-star")
def baird_star(*, horizon: int = 20, discount: float = 0.99) -> FiniteMDP:
    """Baird's star: seven states, no reward, and linear off-policy TD that diverges.

    Actions: 0 dashed, to one of the six rim states; 1 solid, to the center (state 6). Starts are uniform.
    See `BAIRD_FEATURES` and `baird_behavior`. Source: Baird (1995); Sutton and Barto (2018), example 11.1.
    """
    transition_SAS = np.zeros((7, 2, 7))
    transition_SAS[:, 0, :6] = 1.0 / 6.0
    transition_SAS[:, 1, 6] = 1.0
    return FiniteMDP(
        transition_SAS=transition_SAS,
        reward_SA=np.zeros((7, 2)),
        start_S=np.full(7, 1.0 / 7.0),
        horizon=horizon,
        discount=discount,
    )


# phi(s) = 2 e_s + e_7 on the rim, phi(6) = e_6 + 2 e_7 in the center.
BAIRD_FEATURES = np.hstack([np.diag([2.0] * 6 + [1.0]), np.array([[1.0]] * 6 + [[2.0]])])


def baird_behavior() -> Floats:
    """mu_SA of Baird's star: dashed 6/7, solid 1/7, which keeps the state distribution uniform."""
    return np.tile([6.0 / 7.0, 1.0 / 7.0], (7, 1))


@world("combination-lock")
def combination_lock(
    *, length: int = 6, actions: int = 4, horizon: int = 12, discount: float = 1.0, seed: int = 0
) -> FiniteMDP:
    """A lock of `length` digits: the right digit advances, a wrong one restarts, opening it pays 1.

    State s counts the right digits so far; state `length` is open and ends the episode. `seed` draws the
    code.
    """
    _at_least("length", length, 1)
    code_S = np.random.default_rng(seed).integers(actions, size=length)
    transition_SAS = np.zeros((length + 1, actions, length + 1))
    transition_SAS[:, :, 0] = 1.0
    transition_SAS[np.arange(length), code_S] = np.eye(length + 1)[1:]
    return FiniteMDP(
        transition_SAS=transition_SAS, reward_SA=np.zeros((length + 1, actions)),
        bonus_S=_one_hot(length + 1, length), start_S=_one_hot(length + 1, 0),
        terminal_S=np.arange(length + 1) == length, horizon=horizon, discount=discount,
    )  # fmt: skip


def _at_least(name: str, given: int, least: int) -> None:
    if given < least:
        raise ValueError(f"{name} is {given}, expected at least {least}.")
