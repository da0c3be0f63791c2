"""Small worlds and logs behind the claims about trajectory estimators."""

from typing import Any

from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.logged_data import Log
from envs.mdps import chain, garnet, grid_world
from testbed.estimators.trajectory_weights import LoggedEpisodes


def of_log(log: Log, pi_SA: Floats, mu_SA: Floats, gamma: float, cells: Any = ...) -> LoggedEpisodes:
    """A log of mu, or some of its cells, as data about pi."""
    fields = {name: getattr(log, f"{name}_RBT")[cells] for name in ("state", "action", "reward", "mask")}
    given = {f"{name}_NT": x for name, x in fields.items()}
    return LoggedEpisodes.tabular(**given, pi_SA=pi_SA, mu_SA=mu_SA, gamma=gamma)


def ten_steps(seed: int, discount: float = 0.95) -> dict[str, FiniteMDP]:
    """A corridor, a random world and a slippery grid, 10 steps each."""
    common: dict[str, Any] = {"horizon": 10, "discount": discount}
    return {
        "chain": chain(length=6, **common),
        "garnet": garnet(states=8, actions=3, branching=3, seed=seed, noise_std=0.5, **common),
        "grid": grid_world(layout=("SFF", "FHF", "FFG"), slip=0.2, **common),
    }
