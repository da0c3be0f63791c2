"""Small worlds and logs behind the claims about trajectory estimators."""

from typing import Any

import numpy as np

from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.mdps import chain, garnet, grid_world
from envs.offline import Log
from testbed.estimators.trajectory_weights import LoggedEpisodes
from testbed.exact import mdp
from testbed.exact.ratios_dice import state_marginal_ratios


def noisy_world(seed: int, terminal: list[bool] | None = None) -> tuple[FiniteMDP, Floats, Floats, Floats]:
    """3 states, 2 actions, 3 steps, Bernoulli rewards; with pi, mu and a model that is noise, [T, S, A]."""
    rng = np.random.default_rng(seed)
    world = FiniteMDP(
        transition_SAS=rng.dirichlet(np.ones(3), size=(3, 2)),
        reward_SA=rng.random((3, 2)),
        start_S=np.array([0.6, 0.4, 0.0]),
        horizon=3,
        discount=0.9,
        terminal_S=None if terminal is None else np.array(terminal),
        noise="bernoulli",
    )
    pi_SA, mu_SA = rng.dirichlet([2.0, 2.0], size=(2, 3))
    return world, pi_SA, mu_SA, rng.normal(size=(3, 3, 2))


def dyadic_world(terminal: bool, horizon: int = 3) -> tuple[FiniteMDP, Floats, Floats]:
    """2 states, 2 actions, all probabilities multiples of 1/4; with pi and mu. terminal: state 1 ends it."""
    world = FiniteMDP(
        transition_SAS=np.array([[[0.25, 0.75], [0.75, 0.25]], [[0.5, 0.5], [0.25, 0.75]]]),
        reward_SA=np.array([[1.0, -0.5], [0.25, 2.0]]),
        start_S=np.array([1.0, 0.0]) if terminal else np.array([0.75, 0.25]),
        horizon=horizon,
        discount=0.8,
        terminal_S=np.array([False, True]) if terminal else None,
    )
    return world, np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([[0.25, 0.75], [0.5, 0.5]])


def two_steps(first_A: list[float], second_A: list[float]) -> FiniteMDP:
    """Two decisions in a row, rewards by step and action; the step is the state."""
    return FiniteMDP(
        transition_SAS=np.array([[[0.0, 1.0]] * 2] * 2),
        reward_SA=np.array([first_A, second_A]),
        start_S=np.array([1.0, 0.0]),
        horizon=2,
    )


def singles(
    world: FiniteMDP, pi_SA: Floats, mu_SA: Floats, q_TSA: Floats | None = None
) -> tuple[mdp.EpisodeTable, LoggedEpisodes]:
    """Every episode of mu, and each as a data set of its own, [N, 1, T], with exact state ratios."""
    table = mdp.enumerate_episodes(world, mu_SA)
    ratio_TS = state_marginal_ratios(world, pi_SA, mu_SA)
    place = (slice(None), None)
    ratio_NT = ratio_TS[np.arange(world.horizon), table.state_NT]
    alone = _taken(table, place, world, pi_SA, mu_SA, state_marginal_importance_weight_NT=ratio_NT[place])
    return table, alone if q_TSA is None else alone.with_model(q_TSA)


def pairs(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats) -> tuple[Floats, LoggedEpisodes]:
    """The probabilities of all ordered pairs of episodes, and each pair as a data set, [P, 2, T]."""
    table = mdp.enumerate_episodes(world, mu_SA)
    index_P2 = np.indices((len(table.probability_N),) * 2).reshape(2, -1).T
    return table.probability_N[index_P2].prod(-1), _taken(table, index_P2, world, pi_SA, mu_SA)


def exact_log(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats) -> LoggedEpisodes:
    """A log of mu in which every episode is exactly as frequent as likely; for `dyadic_world`."""
    table = mdp.enumerate_episodes(world, mu_SA)
    count_N = table.probability_N * 4.0 ** (1 + 2 * world.horizon)
    assert (count_N == np.rint(count_N)).all(), "a probability is not a multiple of a power of 1/4"
    row_M = np.repeat(np.arange(len(count_N)), count_N.astype(np.int64))
    return _taken(table, row_M, world, pi_SA, mu_SA)


def _taken(
    table: mdp.EpisodeTable, row: Any, world: FiniteMDP, pi_SA: Floats, mu_SA: Floats, **more: Any
) -> LoggedEpisodes:
    """Rows of a table of episodes as data of mu about pi."""
    fields = {name: getattr(table, name)[row] for name in ("state_NT", "action_NT", "reward_NT", "mask_NT")}
    return LoggedEpisodes.tabular(**fields, **more, pi_SA=pi_SA, mu_SA=mu_SA, gamma=world.discount)


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


def random_log(n: int = 8, *, same: bool = False, full: bool = False) -> LoggedEpisodes:
    """6 data sets of n episodes of up to 4 steps, lengths at random unless full, and a random model."""
    rng = np.random.default_rng(7)
    pi_SA, mu_SA = rng.dirichlet([2.0, 2.0], size=(2, 3))
    state_NT, action_NT = rng.integers(3, size=(2, 3, n, 4)), rng.integers(2, size=(2, 3, n, 4))
    length_N1 = rng.integers(1, 5, size=(2, 3, n, 1)) if not full else np.full((2, 3, n, 1), 4)
    log = LoggedEpisodes.tabular(
        state_NT=state_NT,
        action_NT=action_NT,
        reward_NT=rng.normal(size=state_NT.shape),
        mask_NT=np.arange(4) < length_N1,
        pi_SA=mu_SA if same else pi_SA,
        mu_SA=mu_SA,
        gamma=0.8,
    )
    return log.with_model(rng.normal(size=(2, 3, 4, 3, 2)))


def random_transitions(seed: int, *, ends: bool, missing: bool) -> LoggedEpisodes:
    """60 one-step episodes; ends: of a fifth; missing: action 1 is logged only in state 0."""
    rng = np.random.default_rng(seed)
    pi_SA = rng.dirichlet([2.0, 2.0], size=3)
    state_N1, next_N1 = rng.integers(3, size=(2, 60, 1))
    action_N1 = rng.integers(2, size=(60, 1)) * ((state_N1 == 0) | (not missing))
    return LoggedEpisodes.tabular(
        state_NT=state_N1,
        action_NT=action_N1,
        next_state_NT=next_N1,
        done_NT=rng.random((60, 1)) < 0.2 * ends,
        reward_NT=rng.normal(size=(60, 1)),
        pi_SA=pi_SA,
        mu_SA=np.full((3, 2), 0.5),
        gamma=0.8,
    )


def law_of_transitions(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats) -> LoggedEpisodes:
    """Every (s, a, s') from live states as often as likely under even s and mu, one step per episode."""
    live_S = ~world.tables.terminal_S
    state_M, action_M, next_M = (x.ravel() for x in np.indices(world.transition_SAS.shape))
    count_M = 16.0 * (mu_SA[..., None] * world.transition_SAS).ravel() * live_S[state_M]
    row_N = np.repeat(np.arange(len(count_M)), count_M.astype(np.int64))
    state_N1, action_N1, next_N1 = (x[row_N][:, None] for x in (state_M, action_M, next_M))
    return LoggedEpisodes.tabular(
        state_NT=state_N1,
        action_NT=action_N1,
        next_state_NT=next_N1,
        done_NT=~live_S[next_N1],
        reward_NT=world.reward_SA[state_N1, action_N1],
        pi_SA=pi_SA,
        mu_SA=mu_SA,
        gamma=world.discount,
    )
