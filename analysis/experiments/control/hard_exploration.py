"""Optimistic actor-critics on combination locks, against random exploration and logged episodes."""

import numpy as np

from analysis.lab import Experiment, Grid, Groups, Plot, Rows, Seeds, TunedArms, asks, inside, of_seeds
from envs.arrays import Floats
from testbed.rng import key

NAME = "hard-exploration"
SEEDS, PILOTS = 48, 12
EPISODES = (200, 400, 800, 1600, 3200)
ERRORS = (0.2, 0.1, 0.05)
"""Mean regrets per episode, of at most about 1, at which trajectories are counted."""
LOGGED, SKILL = 200, 0.5
ROOT, SQUARE, TWICE = 0.55, 2.2, 2.0
"""Margins of the exponents 1/2 and 2; margin of a ratio of regrets. Set before the table was made."""
RATE = (1.0, 10.0, 100.0, 1000.0, 1e4, 1e5)
EPSILON = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
ARMS: dict[str, Grid] = {
    "optimistic": {"rate": RATE, "bonus": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)},
    "by chance": {"rate": RATE, "epsilon": EPSILON},
    "by chance, logged": {"rate": RATE, "epsilon": EPSILON},
}


def learn(seeds: Seeds, arm: str, rate: float, bonus: float = -1.0, epsilon: float = 0.0) -> Groups:
    """Return the last episode's log regret, its exponent, and that of trajectories in 1 / error, [R] each.

    A seed that never reaches one of the errors gets twice the bound as its exponent.
    """
    from analysis.worlds.locks import lock, regrets  # imported here: it loads the compiler

    marks_K = np.unique(np.geomspace(50, EPISODES[-1], 57).astype(np.int64))
    marks_K = np.union1d(marks_K, EPISODES)
    logged, found = LOGGED if arm.endswith("logged") else 0, []
    for seed in seeds:
        drawn = key(seed, f"{NAME} {seed}") % 2**32
        found.append(regrets(*lock(seed), drawn, marks_K, bonus, rate, epsilon, logged, SKILL))
    # A logged start may leave no regret at all, and 0 has no logarithm.
    regret_RK = np.maximum(np.array(found), 1e-3)
    log_RE = np.log(regret_RK[:, np.searchsorted(marks_K, EPISODES)])
    below_RXK = (regret_RK / marks_K)[:, None] <= np.array(ERRORS)[:, None]
    first_RX = np.where(below_RXK.any(-1), marks_K[below_RXK.argmax(-1)], np.nan)
    return {
        "log regret": log_RE[:, -1], "exponent": slope(EPISODES, log_RE),
        "trajectories": -np.nan_to_num(slope(ERRORS, np.log(first_RX)), nan=-2 * SQUARE),
        # In tenths of a log, so that a tenth of the regret is what a wider grid must gain to count.
        "score": -0.1 * log_RE[:, -1],
    }  # fmt: skip


TUNED = TunedArms(ARMS, learn, "score", PILOTS, fine=True)


def slope(at: tuple[float, ...], value_RK: Floats) -> Floats:
    """Return the least-squares slope of values over log x, [R]."""
    x_K = np.log(at) - np.log(at).mean()
    return np.asarray(value_RK @ x_K / (x_K @ x_K))


def rows(seeds: Seeds) -> Rows:
    """Yield the outcomes of each arm except the score."""
    yield from (frame.drop(columns="score") for frame in TUNED.rows(seeds))


EXPERIMENT = Experiment(
    question="Where exploration is hard, does an optimistic actor-critic have root regret, and is it needed?",
    source="Tan, Fan & Wei (2025), Actor-critics can achieve optimal sample efficiency",
    differs="random combination locks of 6 places and 4 actions; tables in place of function classes; tuned",
    compute=of_seeds(NAME, rows, SEEDS, {"episodes": EPISODES[-1], "logged": LOGGED}),
    keys=("run", "seed", "arm"), metrics=("log regret", "exponent", "trajectories", "at end"),
    margins={"exponent of regret": ROOT, "of trajectories": SQUARE, "factor of regret": TWICE},
    figure=Plot(
        "distribution", x="arm", y="exponent: exponent of regret",
        says="Shows the exponent with which regret grows with episodes, for actor-critics on random "
        "combination locks; optimistic adds a bonus to rarely tried actions; by chance takes a share of "
        "random actions instead; by chance, logged does so after 200 logged episodes.",
    ),
    systems=("Actor-critics optimal sample efficiency",),
)  # fmt: skip
asks(EXPERIMENT,
    ("optimism-has-root-regret-on-locks", "On combination locks the regret of a tuned optimistic "
     "actor-critic grows slower than episodes^0.55.", "optimistic", None, ROOT, "exponent",
     {"below": True, "off": {"arm": "by chance"}}),
    ("optimism-needs-inverse-square-trajectories", "On combination locks the trajectories that a tuned "
     "optimistic actor-critic needs to a mean regret of 0.2 to 0.05 grow slower than the error to the power "
     "-2.2.", "optimistic", None, SQUARE, "trajectories",
     {"below": True, "off": {"arm": "by chance"}}),
    ("logged-episodes-replace-optimism", "From 200 logged episodes an actor-critic without optimism has less "
     "regret than an optimistic one without them.", "optimistic", "by chance, logged", 0.0, "log regret"),
    gates={"tuned": inside()},
)  # fmt: skip
