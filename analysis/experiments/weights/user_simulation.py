"""User simulators conditioned on outcomes seen afterwards, or on controls step by step, under another
policy.
"""

import math

import numpy as np

from analysis.lab import Evidence, Experiment, exact, short_of
from analysis.worlds.trajectory_worlds import singles
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from testbed.estimators.marginal import marginalized_is
from testbed.estimators.trajectory import trajectory_is
from testbed.offline.tabular import hindsight

EXPERIMENT = Experiment(
    "user-simulation",
    question=(
        "Which simulated users keep a metric right when the simulated agent is not the one that was logged?"
    ),
    source="Tennenholtz et al. (2026), Controllable user simulation, arXiv:2605.11519",
    differs="users that answer yes or no at once, and outcomes that are the number of yes; all is enumerated",
    systems=("Controllable User Simulation",),
)

YES_A = np.array([0.2, 0.5, 0.9])
"""Chance that a user says yes to each of three agent actions."""
MU_A, PI_A = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
HORIZONS = (1, 2, 4, 8, 16)


def outcome_law(horizon: int) -> Floats:
    """P(k yes in the last n turns) under the logged agent, [n, k]."""
    yes = float(MU_A @ YES_A)
    law_NK = np.zeros((horizon + 1, horizon + 1))
    law_NK[0, 0] = 1.0
    for n in range(1, horizon + 1):
        law_NK[n] = (1 - yes) * law_NK[n - 1]
        law_NK[n, 1:] += yes * law_NK[n - 1, :-1]
    return law_NK


def simulated_yes(horizon: int, stepwise: bool) -> float:
    """E[share of yes] when agent PI_A talks to users trained on logs of agent MU_A.

    Stepwise users answer by P(yes | action). Post-hoc users are given the episode's outcome G, drawn as
    it was logged, and answer by P(yes | action, yes still to come), `hindsight` of what was logged.
    """
    if stepwise:
        return float(PI_A @ YES_A)
    law_NK = outcome_law(horizon)
    left_K, said = law_NK[horizon].copy(), 0.0
    for n in range(horizon, 0, -1):
        # Rows are agent actions, columns the answer no or yes, outcomes the yes still to come.
        outcome_SAG = np.stack([law_NK[n - 1], np.roll(law_NK[n - 1], 1)])
        outcome_SAG[1, 0] = 0.0
        answer_RSA = np.stack([1 - YES_A, YES_A], -1)[None]
        given_RSAG = np.broadcast_to(outcome_SAG[None, None], (1, 3, 2, horizon + 1))
        yes_GS = hindsight(answer_RSA, given_RSAG)[0, :, :, 1]
        yes_G = yes_GS @ PI_A
        said += float(left_K @ yes_G)
        left_K = left_K * (1 - yes_G) + np.append((left_K * yes_G)[1:], 0.0)
    return said / horizon


def turns(horizon: int) -> FiniteMDP:
    """The conversation as a world of one state whose reward is a yes."""
    return FiniteMDP(
        transition_SAS=np.ones((1, 3, 1)),
        reward_SA=YES_A[None],
        start_S=np.ones(1),
        horizon=horizon,
        noise="bernoulli",
    )


@EXPERIMENT.claim()
def post_hoc_users_report_the_logged_agent() -> Evidence:
    """Users conditioned on the logged outcome give every agent the logged agent's metric, at every horizon;
    users with controls step by step give the agent's own.
    """
    gaps = [short_of(abs(float((PI_A - MU_A) @ YES_A)), 0.2)]
    for horizon in HORIZONS:
        world = turns(horizon)
        logged, asked = (float(world.value(x_A[None])) / horizon for x_A in (MU_A, PI_A))
        gaps.append(abs(simulated_yes(horizon, stepwise=False) - logged))
        gaps.append(abs(simulated_yes(horizon, stepwise=True) - asked))
    return exact(gaps, 1e-12, "largest distance of a metric")


@EXPERIMENT.claim(source="Tennenholtz et al. (2026), growth of metric variance; second moments of products")
def post_hoc_correction_grows_geometrically() -> Evidence:
    """Episode weights, which an outcome-conditioned metric needs, have second moment (sum pi^2/mu)^T, and the
    metric's log-variance rises by over 0.3 a turn; with weights turn by turn its variance is linear in T.
    """
    square, gaps, log_variance = float((PI_A**2 / MU_A).sum()), [], []
    for horizon in (1, 2, 3, 4):
        world = turns(horizon)
        second = float(world.divergence(PI_A[None], MU_A[None]).second_moment)
        gaps.append(abs(second / square**horizon - 1))
        episodes, alone = singles(world, PI_A[None], MU_A[None])
        by_turn = episodes.variance(marginalized_is(alone).value)
        log_variance.append(math.log(episodes.variance(trajectory_is(alone).value)))
        single = float((PI_A**2 / MU_A) @ YES_A) - float(PI_A @ YES_A) ** 2
        gaps.append(abs(by_turn / (horizon * single) - 1))
    rises = np.diff(log_variance)
    return exact(
        [*gaps, short_of(float(rises.min()), 0.3)], 1e-9, f"relative distance; log-variance rises by {rises}"
    )
