"""Off-policy values with a hidden cause: an instrument (IV-OPE), against estimators that know of none."""

import itertools

import numpy as np

from analysis.kernels.instrumented_mdp import Confounded, confounded, instrumented_value
from analysis.lab import Experiment, Floats, Plot, Rows, Seeds, ask, columns, generator, keys, of_seeds
from envs import infinite_horizon
from envs.mdps import garnet
from testbed.offline.tabular_offline import clone, policy_q

NAME = "offline-iv"
SEEDS, LOGS, STATES, DISCOUNT, STEPS = 48, 80, 3, 0.7, 5
EPISODES, STRENGTHS = (200, 1600), (0.5, 0.3)
"""Logged episodes of 5 steps; by how much the instrument moves the chance of an action, as the hidden cause
does by 0.5.
"""
VISITED = 0.2
"""Least share of the logged steps that a state has: a world without is drawn again."""
MARGIN, COVER = 0.5, 0.02
"""As n^-1/2 log RMSE falls by 1.04. Set before the table was made."""


def world(seed: int, strength: float) -> tuple[Confounded, Floats]:
    """Return a random confounded world of 3 states and 2 actions, and the policy whose value is asked for."""
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
    """Return estimates of 80 logs by instrument, model and importance sampling; the first's errors, [R]."""
    log, z_RBT = asked.collect(episodes, keys(tuple(range(LOGS)), f"{NAME} {seed} {episodes}"))
    start_S = asked.world.start_S
    by_z_R, error_R = instrumented_value(log, z_RBT, pi_SA, start_S, DISCOUNT)
    counts = log.counts(STATES, 2)
    pi_RSA = np.broadcast_to(pi_SA, counts.reward_RSA.shape)
    q_RSA = policy_q(counts.moves_RSAS, counts.reward_RSA, pi_RSA, DISCOUNT)
    # What importance sampling and doubly robust estimates tend to as well, while the cause stays hidden.
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
        # Importance sampling sees 5 steps; what is beyond them is no error of its weights.
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
        "random worlds of 3 states where a hidden cause moves actions and rewards: instrument uses a "
        "variable that moves actions alone, by so much (strength); model solves the logged means, and "
        "importance weighs logged returns, as if nothing were hidden.",
    ),
    systems=("IV-OPE",),
)  # fmt: skip

FEW, MANY = ({"episodes": each} for each in EPISODES)
ask(EXPERIMENT, "instrumented-error-vanishes", "From 200 to 1600 episodes the instrument's RMSE falls by "
    "e^0.5 or more, whether it is strong or weak.", FEW, MANY, MARGIN, "log_rmse",
    over={"estimator": "instrument", "strength": STRENGTHS})  # fmt: skip

OTHERS = {"estimator": ("model", "importance"), "strength": STRENGTHS}
ask(EXPERIMENT, "confounded-errors-stay", "Those of the model and of importance sampling, which take logged "
    "means, fall by less.", FEW, MANY, MARGIN, "log_rmse", below=True, over=OTHERS)  # fmt: skip
