"""Off-policy values with a hidden cause: an instrument (IV-OPE), against estimators that ignore the cause."""

import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.lab import Experiment, Floats, Ints, Plot, Rows, Seeds, ask, columns, generator, keys, of_seeds
from envs import infinite_horizon
from envs.finite_mdp import FiniteMDP
from envs.logged_data import Log, collect
from envs.mdps import garnet
from testbed.errors import UserError
from testbed.offline.tabular_offline import clone, policy_q

WEAKEST = 1e-12
"""First stage below which an effect is not identified."""


@dataclass(frozen=True)
class InstrumentedModel:
    """E[r | s, do(a)] and P(s' | s, do(a)) among live states, with the first stage P(a|z=1, s) - P(a|z=0, s).

    Estimated probabilities may be negative: clipping would bias quantities that are linear in them.
    """

    moves_RSAS: Floats
    reward_RSA: Floats
    first_RSA: Floats


def instrumented_model(log: Log, z_RBT: Ints, states: int, actions: int) -> InstrumentedModel:
    """theta_Y(s, a) = (difference in z of E[Y 1{A=a} | z, s]) / (of P(A=a | z, s)), Y = r and Y = 1{s'}.

    Identified if z is independent of the hidden cause, affects Y only through the action, and has an effect
    on the action that does not depend on the cause. Source: Xu et al. (2023), An instrumental variable
    approach to confounded off-policy evaluation; one step is `testbed.estimators.instrumental_variable`.
    Raises UserError for a state without data under one value of z, or an action that z does not affect.
    """
    taken, earned, going = [], [], []
    for value in (0, 1):
        counts = log.counts(states, actions, (z_RBT == value).astype(np.float64))
        total_RS1 = counts.visit_RSA.sum(-1, keepdims=True)
        if not (total_RS1 > 0).all():
            place = tuple(int(i) for i in np.argwhere(total_RS1[..., 0] == 0)[0])
            raise UserError(f"No step in (cell, state) {place} has z = {value}; log more episodes.")
        taken.append(counts.visit_RSA / total_RS1)
        earned.append(counts.visit_RSA * counts.reward_RSA / total_RS1)
        going.append(counts.going_RSAS / total_RS1[..., None])
    first_RSA = taken[1] - taken[0]
    if (np.abs(first_RSA) < WEAKEST).any():
        place = tuple(int(i) for i in np.argwhere(np.abs(first_RSA) < WEAKEST)[0])
        raise UserError(
            f"The instrument does not move (cell, state, action) {place}, so its effect is not identified."
        )
    return InstrumentedModel(
        (going[1] - going[0]) / first_RSA[..., None], (earned[1] - earned[0]) / first_RSA, first_RSA
    )


def instrumented_value(
    log: Log, z_RBT: Ints, pi_SA: Floats, start_S: Floats, discount: float
) -> tuple[Floats, Floats]:
    """V = start . (I - discount P_pi)^-1 r_pi in the instrumented model, and its standard error, [R] each.

    Delta method: with Y = r + discount V(s') and d = (I - discount P_pi)^-T start the error is sum_s d(s)
    (mean over z = 1 minus mean over z = 0 of pi(a|s)/first (Y - theta_Y)), treating steps as independent
    given (s, z).
    """
    states, actions = pi_SA.shape
    model = instrumented_model(log, z_RBT, states, actions)
    step_RSS = np.einsum("sa,rsat->rst", pi_SA, model.moves_RSAS)
    system_RSS = np.eye(states) - discount * step_RSS
    value_RS = np.linalg.solve(system_RSS, (pi_SA * model.reward_RSA).sum(-1)[..., None])[..., 0]
    weight_RS = np.linalg.solve(
        np.swapaxes(system_RSS, -1, -2), np.broadcast_to(start_S[:, None], (*value_RS.shape, 1))
    )[..., 0]
    theta_RSA = model.reward_RSA + discount * np.einsum("rsat,rt->rsa", model.moves_RSAS, value_RS)
    cell_R11 = np.arange(len(value_RS))[:, None, None]
    ahead_RBT = np.where(log.going_RBT, value_RS[cell_R11, log.next_RBT], 0.0)
    place = cell_R11, log.state_RBT, log.action_RBT
    residual_RBT = log.reward_RBT + discount * ahead_RBT - theta_RSA[place]
    residual_RBT = residual_RBT * (pi_SA / model.first_RSA)[place]
    key_RBT = (cell_R11 * states + log.state_RBT) * 2 + z_RBT
    mask = log.mask_RBT
    sums = [
        np.bincount(key_RBT[mask], x, minlength=len(value_RS) * states * 2).reshape(-1, states, 2)
        for x in (np.ones(int(mask.sum())), residual_RBT[mask], residual_RBT[mask] ** 2)
    ]
    mean_RS2 = sums[1] / sums[0]
    variance_RS2 = (sums[2] / sums[0] - mean_RS2**2) / np.maximum(sums[0] - 1, 1)
    variance_R = (weight_RS**2 * variance_RS2.sum(-1)).sum(-1)
    return (value_RS * start_S).sum(-1), np.asarray(np.sqrt(variance_R))


@dataclass(frozen=True)
class Confounded:
    """A world whose logger sees a hidden cause u and an instrument z, played as the finite MDP `seen`.

    State 4 s + 2 u + z of `seen` is state s with u and z, two fair coins drawn at every step. Averaged over
    u, `seen` is `world`: a policy that depends only on s has the world's value.
    """

    world: FiniteMDP
    seen: FiniteMDP
    mu_SA: Floats

    def collect(self, episodes: int, key_R: NDArray[np.uint64], *, step: int = 0) -> tuple[Log, Ints]:
        """Return the analyst's data: the log over s, and the instrument z_RBT; u is hidden."""
        mu_RWSA = np.broadcast_to(self.mu_SA, (len(key_R), 1, *self.mu_SA.shape))
        log = collect(self.seen, mu_RWSA, episodes, key_R, step=step)
        bare = dataclasses.replace(log, state_RBT=log.state_RBT // 4, next_RBT=log.next_RBT // 4)
        return bare, np.where(log.mask_RBT, log.state_RBT % 2, 0)


def confounded(
    world: FiniteMDP, *, instrument: float = 0.4, hidden: float = 0.4, reward: float = 0.5, moves: float = 0.3
) -> Confounded:
    """mu(a | s, z, u) = 1/A + (z - 1/2) instrument g(a) + (u - 1/2) hidden g(A - 1 - a), z and u fair coins.

    g = 2 (e_0 - 1/A) / (A - 1). u shifts the reward by +-`reward`, and a share `moves` of the possible mass
    from the last to the first successor. As z and u are additive, the instrument identifies P(.|s, do(a)) of
    the world. Raises ValueError unless instrument + hidden <= 1, 0 <= moves <= 1, and rewards are not
    Bernoulli. Designed here.
    """
    if min(instrument, hidden) < 0 or instrument + hidden > 1 or not 0 <= moves <= 1:
        raise ValueError(
            f"instrument {instrument:g}, hidden {hidden:g}, moves {moves:g}: expected instrument and hidden "
            ">= 0 with a sum of at most 1, and moves in [0, 1]."
        )
    if world.noise == "bernoulli":
        raise ValueError("noise is 'bernoulli', expected 'none' or 'normal': u shifts the mean reward.")
    states, actions = world.states, world.actions
    u_X, z_X = np.tile([0, 0, 1, 1], states) - 0.5, np.tile([0, 1, 0, 1], states) - 0.5
    pull_A = 2.0 * (np.eye(actions)[0] - 1 / actions) / max(actions - 1, 1)
    mu_XA = 1 / actions + instrument * z_X[:, None] * pull_A + hidden * u_X[:, None] * pull_A[::-1]
    support_SAS = world.transition_SAS > 0
    first_SA = support_SAS.argmax(axis=-1)
    last_SA = states - 1 - support_SAS[..., ::-1].argmax(axis=-1)
    shift_SAS = np.eye(states)[first_SA] - np.eye(states)[last_SA]
    both = [np.take_along_axis(world.transition_SAS, x[..., None], -1)[..., 0] for x in (first_SA, last_SA)]
    shift_SAS = shift_SAS * (moves * np.minimum(*both))[..., None]
    moved_XAS = np.repeat(world.transition_SAS, 4, axis=0)
    moved_XAS = moved_XAS + 2 * u_X[:, None, None] * np.repeat(shift_SAS, 4, axis=0)
    fields = {f.name: getattr(world, f.name) for f in dataclasses.fields(FiniteMDP)}
    seen = FiniteMDP(
        **fields
        | {
            "transition_SAS": np.repeat(np.maximum(moved_XAS, 0.0), 4, axis=-1) / 4,
            "reward_SA": np.repeat(world.reward_SA, 4, axis=0) + 2 * reward * u_X[:, None],
            "start_S": np.repeat(world.start_S, 4) / 4,
            "terminal_S": np.repeat(world.tables.terminal_S, 4),
            "bonus_S": np.repeat(world.tables.bonus_S, 4),
        }
    )
    return Confounded(world, seen, np.maximum(mu_XA, 0.0))


NAME = "offline-iv"
SEEDS, LOGS, STATES, DISCOUNT, STEPS = 48, 80, 3, 0.7, 5
EPISODES, STRENGTHS = (200, 1600), (0.5, 0.3)
"""Logged episodes of 5 steps; change in an action's probability by the instrument; the hidden cause changes
it by 0.5."""
VISITED = 0.2
"""Smallest share of the logged steps in a state; a world with less is drawn again."""
MARGIN, COVER = 0.5, 0.02
"""At a rate of n^-1/2, log RMSE falls by 1.04. Set before the table was made."""


def world(seed: int, strength: float) -> tuple[Confounded, Floats]:
    """Return a random confounded world of 3 states and 2 actions, and the policy to evaluate."""
    rng = generator(seed, NAME)
    while True:
        drawn = int(rng.integers(2**31))
        plain = garnet(states=STATES, actions=2, branching=2, seed=drawn, horizon=STEPS, discount=DISCOUNT)
        law_S, share_S = plain.start_S, np.zeros(STATES)
        for _ in range(STEPS):
            share_S, law_S = share_S + law_S / STEPS, law_S @ plain.transition_SAS.mean(1)
        if share_S.min() >= VISITED:
            pi_SA = rng.dirichlet(np.ones(2), size=STATES)
            return confounded(plain, instrument=strength, hidden=0.5, reward=0.5), pi_SA


def estimates(asked: Confounded, pi_SA: Floats, episodes: int, seed: int) -> tuple[dict[str, Floats], Floats]:
    """Return 80 logs' estimates by instrument, model and importance sampling; the first's errors, [R]."""
    log, z_RBT = asked.collect(episodes, keys(tuple(range(LOGS)), f"{NAME} {seed} {episodes}"))
    start_S = asked.world.start_S
    by_z_R, error_R = instrumented_value(log, z_RBT, pi_SA, start_S, DISCOUNT)
    counts = log.counts(STATES, 2)
    pi_RSA = np.broadcast_to(pi_SA, counts.reward_RSA.shape)
    q_RSA = policy_q(counts.moves_RSAS, counts.reward_RSA, pi_RSA, DISCOUNT)
    # Doubly robust estimates have the same limit as importance sampling while the cause stays hidden.
    found = {"model": ((pi_RSA * q_RSA).sum(-1) * start_S).sum(-1)}
    cloned_RSA = clone(counts.visit_RSA)
    place = np.arange(LOGS)[:, None, None], log.state_RBT, log.action_RBT
    ratio_RBT = np.where(log.mask_RBT, pi_SA[place[1:]] / cloned_RSA[place], 1.0)
    found["importance"] = ((ratio_RBT.cumprod(-1) * log.reward_RBT) @ DISCOUNT ** np.arange(STEPS)).mean(-1)
    return {"instrument": by_z_R, **found}, error_R


def rows(seeds: Seeds) -> Rows:
    """Yield squared errors and coverage over 80 logs of a random world, by strength and logged episodes."""
    for seed, strength, episodes in itertools.product(seeds, STRENGTHS, EPISODES):
        asked, pi_SA = world(seed, strength)
        right = float(infinite_horizon.value(asked.world, pi_SA))
        # Importance sampling sees 5 steps; truncation is not counted as an error of its weights.
        short = float(asked.world.value(pi_SA))
        found, error_R = estimates(asked, pi_SA, episodes, seed)
        for name, value_R in found.items():
            away_R = value_R - (short if name == "importance" else right)
            covered = (np.abs(away_R) <= 1.959964 * error_R).mean() if name == "instrument" else np.nan
            measured = {"log_rmse": np.log((away_R**2).mean()) / 2, "bias": away_R.mean(), "covered": covered}
            yield columns((seed,), strength=strength, episodes=episodes, estimator=name, **measured)


EXPERIMENT = Experiment(
    question="Does an instrument make off-policy values right when logged actions have a hidden cause?",
    source="Xu et al. (2023), An instrumental variable approach to confounded off-policy evaluation",
    differs="random worlds of 3 states, a binary instrument; the behavior policy is estimated where needed",
    compute=of_seeds(NAME, rows, SEEDS, {"logs": LOGS}),
    keys=("run", "seed", "strength", "episodes", "estimator"), metrics=("log_rmse", "bias", "covered"),
    margins={"fall of log RMSE from 200 to 1600 episodes": MARGIN, "distance from 95 % coverage": COVER},
    figure=Plot(
        "final by setting", x="episodes", y="log_rmse: log RMSE", arm=("strength", "estimator"),
        says="Shows the log of the root mean squared error of a policy's value against logged episodes, in "
        "random worlds of 3 states where a hidden cause moves actions and rewards; instrument uses a "
        "variable that moves only actions, by the given strength; model solves the logged means and "
        "importance weighs logged returns, as if nothing were hidden.",
    ),
    systems=("IV-OPE",),
)  # fmt: skip

FEW, MANY = ({"episodes": each} for each in EPISODES)
ask(EXPERIMENT, "instrumented-error-vanishes", "From 200 to 1600 episodes the instrument's RMSE falls by "
    "e^0.5 or more, whether it is strong or weak.", FEW, MANY, MARGIN, "log_rmse",
    over={"estimator": "instrument", "strength": STRENGTHS})  # fmt: skip

OTHERS = {"estimator": ("model", "importance"), "strength": STRENGTHS}
ask(EXPERIMENT, "confounded-errors-stay", "From 200 to 1600 episodes the RMSE of the model and of importance "
    "sampling, which take logged means, falls by less than e^0.5, whether the instrument is strong or weak.",
    FEW, MANY, MARGIN, "log_rmse", below=True, over=OTHERS)  # fmt: skip
