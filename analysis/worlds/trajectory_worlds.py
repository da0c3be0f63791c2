"""Logs as data about another policy."""

from envs.arrays import Floats
from envs.logged_data import Log
from testbed.estimators.trajectory_weights import LoggedEpisodes


def of_log(log: Log, pi_SA: Floats, mu_SA: Floats, gamma: float) -> LoggedEpisodes:
    """Return a log of mu as data about pi."""
    given = {f"{name}_NT": getattr(log, f"{name}_RBT") for name in ("state", "action", "reward", "mask")}
    return LoggedEpisodes.tabular(**given, pi_SA=pi_SA, mu_SA=mu_SA, gamma=gamma)
