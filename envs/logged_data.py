"""Logged data sets of a finite MDP: logging policies, coverage, and variables hidden from the analyst.

All arrays have a leading axis of cells R (seeds, settings), and are pure functions of the cells' keys.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Bools, Floats, Ints, Keys
from envs.checks import check_distributions
from envs.finite_mdp import FiniteMDP

# Start states use these steps of the stream, so that they share no numbers with the actions.
_START_STEPS = 2**31


@dataclass(frozen=True, eq=False)
class Log:
    """Logged episodes of at most T steps, all [R, B, T]; 0 outside the mask.

    next_RBT is the next state, read only where going_RBT: a step into a terminal state has no next state.
    source_RB is the logging policy that played the episode.
    """

    state_RBT: Ints
    action_RBT: Ints
    reward_RBT: Floats
    next_RBT: Ints
    going_RBT: Bools
    mask_RBT: Bools
    source_RB: Ints

    def counts(self, states: int, actions: int, weight_RBT: Floats | None = None) -> "Counts":
        """Return visits, successors and mean rewards, with each step counted `weight` times (None: once)."""
        weight_RBT = np.where(self.mask_RBT, 1.0 if weight_RBT is None else weight_RBT, 0.0)
        cells = len(self.state_RBT)
        pair_RBT = self.state_RBT * actions + self.action_RBT
        pair_RBT = pair_RBT + np.arange(cells)[:, None, None] * (states * actions)
        visit_RSA = _tally(pair_RBT, weight_RBT, (cells, states, actions))
        shape, going_RBT = (cells, states, actions, states), weight_RBT * self.going_RBT
        going_RSAS = _tally(pair_RBT * states + self.next_RBT, going_RBT, shape)
        earned_RSA = _tally(pair_RBT, weight_RBT * self.reward_RBT, (cells, states, actions))
        return Counts(visit_RSA, going_RSAS, ratio(earned_RSA, visit_RSA))

    def returns_to_go(self, discount: float, reward_RBT: Floats | None = None) -> Floats:
        """G_t = sum_{k >= t} discount^(k - t) r_k to the end of the record, [R, B, T]; 0 outside the mask."""
        given_RBT = np.where(self.mask_RBT, self.reward_RBT if reward_RBT is None else reward_RBT, 0.0)
        found_RBT, later_RB = np.zeros_like(given_RBT), np.zeros(given_RBT.shape[:2])
        for t in reversed(range(given_RBT.shape[2])):
            later_RB = given_RBT[..., t] + discount * later_RB
            found_RBT[..., t] = later_RB
        return found_RBT


@dataclass(frozen=True, eq=False)
class Counts:
    """Sufficient statistics of logged steps: visits [R, S, A], successors [R, S, A, S], mean reward [R, S,
    A].

    Visits minus successors is the number of ends in a terminal state. Rewards are 0 without visits.
    """

    visit_RSA: Floats
    going_RSAS: Floats
    reward_RSA: Floats

    @property
    def moves_RSAS(self) -> Floats:
        """Phat(s' | s, a) among live states, 0 without visits: maximum likelihood, substochastic."""
        return ratio(self.going_RSAS, self.visit_RSA[..., None])

    @property
    def seen_RSA(self) -> Bools:
        return self.visit_RSA > 0

    def __add__(self, other: "Counts") -> "Counts":
        """Pool the data."""
        visit_RSA = self.visit_RSA + other.visit_RSA
        earned_RSA = self.visit_RSA * self.reward_RSA + other.visit_RSA * other.reward_RSA
        return Counts(visit_RSA, self.going_RSAS + other.going_RSAS, ratio(earned_RSA, visit_RSA))

    def scaled(self, factor: ArrayLike) -> "Counts":
        """Count every step `factor` times (a number, or [R]), e.g. to discount old data."""
        factor_R = np.broadcast_to(np.asarray(factor, np.float64), self.visit_RSA.shape[:1])
        visit_RSA = self.visit_RSA * factor_R[:, None, None]
        return Counts(visit_RSA, self.going_RSAS * factor_R[:, None, None, None], self.reward_RSA)


def exact_model(world: FiniteMDP) -> tuple[Floats, Floats]:
    """P(s' | s, a) among live states, [S, A, S], and the mean reward, [S, A]; both 0 in terminal states."""
    live_S = ~world.tables.terminal_S
    reward_SA = np.where(live_S[:, None], world.mean_reward_SA, 0.0)
    return world.transition_SAS * live_S * live_S[:, None, None], reward_SA


def expected_counts(world: FiniteMDP, mu_RSA: Floats, episodes: ArrayLike = 1.0) -> Counts:
    """E[counts] of `episodes` (a number, or [R]) of mu: the data set without noise."""
    moves_SAS, reward_SA = exact_model(world)
    visit_RSA = world.occupancy(mu_RSA).sum(axis=-2)[..., None] * mu_RSA
    visit_RSA = visit_RSA * np.reshape(np.asarray(episodes, np.float64), (-1, 1, 1))
    seen_RSA = np.where(visit_RSA > 0, reward_SA, 0.0)
    return Counts(visit_RSA, visit_RSA[..., None] * moves_SAS, seen_RSA)


def draw_counts(
    world: FiniteMDP, law_RSA: Floats, steps: int, rng: np.random.Generator, cells: int | None = None
) -> Counts:
    """Draw counts of `steps` independent transitions with (s, a) drawn from `law_RSA`, as simulation would.

    law_RSA: [R, S, A], or one [S, A] for `cells` cells. Raises ValueError for an invalid distribution, and
    for noise 'bernoulli' with a bonus of the next state, for which sums cannot be drawn here.
    """
    law_RSA = np.broadcast_to(law_RSA, (cells or len(law_RSA), world.states, world.actions))
    check_distributions(
        "law_RSA", law_RSA.reshape(len(law_RSA), -1), "Give a distribution of state-action pairs."
    )
    bonus_S = world.tables.bonus_S
    if world.noise == "bernoulli" and bonus_S.any():
        raise ValueError("the world has bernoulli rewards and a bonus; expected one of them: use collect().")
    flat_RX = law_RSA.reshape(len(law_RSA), -1)
    # The check above allows more rounding of the sum than multinomial does.
    visit_RX = rng.multinomial(steps, flat_RX / flat_RX.sum(axis=-1, keepdims=True))
    visit_RSA = visit_RX.reshape(law_RSA.shape)
    next_RSAS = rng.multinomial(visit_RSA, world.transition_SAS)
    earned_RSA = visit_RSA * world.reward_SA + next_RSAS @ bonus_S
    if world.noise == "bernoulli":
        earned_RSA = rng.binomial(visit_RSA, world.reward_SA).astype(np.float64)
    elif world.noise == "normal":
        earned_RSA = earned_RSA + world.noise_std * np.sqrt(visit_RSA) * rng.normal(size=visit_RSA.shape)
    live_S = ~world.tables.terminal_S
    visits_RSA = visit_RSA.astype(np.float64)
    return Counts(visits_RSA, (next_RSAS * live_S).astype(np.float64), ratio(earned_RSA, visits_RSA))


def collect(
    world: FiniteMDP,
    mu_RWSA: Floats,
    episodes: int,
    key_R: Keys,
    *,
    share_W: ArrayLike | None = None,
    step: int = 0,
) -> Log:
    """Log `episodes` per cell, from W policies with the given shares (None: equal), exact up to rounding.

    The policy with (b + 1/2) / episodes in its interval of cumulative shares plays episode b, so mixtures are
    exact quotas. Raises ValueError for shapes that disagree and shares that are not a distribution.
    """
    mu_RWSA = np.asarray(mu_RWSA, dtype=np.float64)
    if mu_RWSA.ndim != 4 or len(mu_RWSA) != len(key_R):
        raise ValueError(
            f"mu_RWSA has shape {mu_RWSA.shape} for {len(key_R)} keys, expected (R, W, S, A), R = keys."
        )
    policies = mu_RWSA.shape[1]
    mass_W = np.full(policies, 1 / policies) if share_W is None else np.asarray(share_W, dtype=np.float64)
    check_distributions("share_W", mass_W, "Give each logging policy its share of the episodes.")
    place_B = (np.arange(episodes) + 0.5) / episodes
    source_B = np.minimum(np.searchsorted(np.cumsum(mass_W), place_B), policies - 1).astype(np.int64)
    fields = {f.name: getattr(world, f.name) for f in dataclasses.fields(FiniteMDP)}
    # One step more, for its state: episodes do not hold the state that follows their last step.
    longer = FiniteMDP(**fields | {"horizon": world.horizon + 1})
    from envs import kernels

    uniform_RB = kernels.uniforms(np.asarray(key_R, np.uint64), step + _START_STEPS, episodes, 1)[..., 0]
    start_RN = longer.start(uniform_RB)
    played = longer.simulate_versions(mu_RWSA, source_B[None, :, None], start_RN, 1, key_R, step)
    mask_RBT, going_RBT = played.mask_RBT[..., :-1], played.mask_RBT[..., 1:]
    return Log(
        state_RBT=played.state_RBT[..., :-1],
        action_RBT=played.action_RBT[..., :-1],
        reward_RBT=played.reward_RBT[..., :-1],
        next_RBT=played.state_RBT[..., 1:],  # 0 after the episode's end
        going_RBT=going_RBT,
        mask_RBT=mask_RBT,
        source_RB=np.broadcast_to(source_B, mask_RBT.shape[:2]),
    )


def skilled(best_SA: Floats, quality: ArrayLike) -> Floats:
    """quality * best + (1 - quality) * uniform, [*quality, S, A]: from a random to an expert logger.

    Designed here, after the mixed data sets of D4RL (Fu et al. 2020).
    """
    quality_x11 = np.asarray(quality, dtype=np.float64)[..., None, None]
    return quality_x11 * best_SA + (1.0 - quality_x11) / best_SA.shape[-1]


def covering(mu_xSA: Floats, allowed_xSA: Bools) -> Floats:
    """mu restricted to the allowed actions and normalized, [x, S, A]; ValueError if nothing is left."""
    kept_xSA = np.where(allowed_xSA, mu_xSA, 0.0)
    total_xS1 = kept_xSA.sum(axis=-1, keepdims=True)
    if not (total_xS1 > 0).all():
        place = tuple(int(i) for i in np.argwhere(total_xS1[..., 0] <= 0)[0])
        raise ValueError(f"no allowed action has mass at {place}; allow an action that the policy takes.")
    return np.asarray(kept_xSA / total_xS1)


def _tally(key: Ints, weight: Floats, shape: tuple[int, ...]) -> Floats:
    size = int(np.prod(shape))
    counted = np.bincount(key.ravel(), weight.ravel(), minlength=size)
    return np.asarray(counted.reshape(shape), dtype=np.float64)


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below, 0 where below is 0."""
    positive = below > 0
    return np.asarray(np.where(positive, above / np.where(positive, below, 1.0), 0.0))
