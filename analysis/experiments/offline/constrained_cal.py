"""Primal-dual learning with a replayed cost critic: conservatism and convexification (CAL), and neither."""

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Plot,
    Seeds,
    columns,
    exact,
    of_seeds,
    short_of,
)
from envs import infinite_horizon
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.mdps import garnet
from envs.offline import exact_model
from testbed.offline.constrained import constrained_optimum, primal_dual
from testbed.rng import generator, keys

NAME = "constrained-cal"
SEEDS, ITERATIONS, EPISODES = 24, 150, 1
ARMS = {"plain": (0.0, 0.0), "conservative": (1.0, 0.0), "convexified": (0.0, 1.0), "both": (1.0, 1.0)}
"""Standard deviations added to the estimated cost, and the weight of the augmented Lagrangian."""
BIAS, VIOLATIONS, RETURN = 0.02, 0.2, 0.1
ABOUT = {"iterations": ITERATIONS, "episodes": EPISODES, "violation": "cost above 1.02 budgets"}


def world() -> tuple[FiniteMDP, Floats, float]:
    """6 states, 3 actions, costs in [0, 1], and half the cost of the unconstrained optimum as the budget."""
    found = garnet(states=6, actions=3, branching=3, seed=11, horizon=20, discount=0.9, noise_std=0.5)
    cost_SA = generator(11, "cost").random((6, 3))
    model = exact_model(found)
    best, cheapest = (
        _cost(found, constrained_optimum(model[0], pay_SA, cost_SA, found.start_S, 0.9, 99.0)[0], cost_SA)
        for pay_SA in (model[1], -cost_SA)
    )
    return found, cost_SA, (best + cheapest) / 2


def _cost(found: FiniteMDP, pi_SA: Floats, cost_SA: Floats) -> float:
    law_S = infinite_horizon.occupancy(found, pi_SA[None])[0]
    return float((law_S[:, None] * pi_SA * cost_SA).sum())


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return bias, violations and return over the second half of training."""
    found, cost_SA, budget = world()
    best = constrained_optimum(*exact_model(found), cost_SA, found.start_S, 0.9, budget)[1]
    conservatism_R, convexity_R = (np.repeat(x, len(seeds)) for x in zip(*ARMS.values(), strict=True))
    trained = primal_dual(
        found, cost_SA, budget=budget, conservatism_R=conservatism_R, convexity_R=convexity_R,
        key_R=np.tile(keys(seeds, "constrained-cal"), len(ARMS)), iterations=ITERATIONS, episodes=EPISODES,
        step_size=0.3, dual_rate=0.1, seed=seeds[0],
    )  # fmt: skip
    measured = {
        "bias": (trained.estimated_cost_KR - trained.cost_KR) / budget,
        "violations": trained.cost_KR > 1.02 * budget,
        "return": trained.value_KR / best,
    }
    late = {name: x_KR[ITERATIONS // 2 :].mean(0).reshape(len(ARMS), -1) for name, x_KR in measured.items()}
    for index, name in enumerate(ARMS):
        yield columns(seeds, learner=name, **{each: x_AR[index] for each, x_AR in late.items()})


EXPERIMENT = Experiment(
    NAME,
    question="Is an off-policy cost critic too low, and do conservatism and convexification keep the budget?",
    source="Wu et al. (2024), Off-policy primal-dual safe reinforcement learning (CAL)",
    differs="one random world, tables; a bootstrap ensemble of replayed counts is the cost critic",
    compute=of_seeds(NAME, rows, SEEDS, ABOUT),
    keys=("run", "seed", "learner"),
    metrics=("bias", "violations", "return"),
    margins={
        "bias, share of the budget": BIAS,
        "share of iterations": VIOLATIONS,
        "share of the return": RETURN,
    },
    figure=Plot(
        "frontier",
        x="violations: share of iterations over budget",
        y="return: return, share of the best feasible",
        arm=("learner",),
    ),
    systems=("CAL (off-policy primal-dual safe RL)",),
)


@EXPERIMENT.claim(source="Altman (1999), Constrained Markov decision processes, chapter 3")
def constrained_optimum_mixes_at_most_one_state() -> Evidence:
    """The linear program's policy costs at most the budget, is worth what the program says, randomizes in at
    most one state, and no deterministic policy within the budget is worth more; its value rises with it.

    Return the excesses over these bounds at three budgets, against all 81 deterministic policies.
    """
    found = garnet(states=4, actions=3, branching=2, seed=2, discount=0.8)
    cost_SA, model = generator(2, "cost").random((4, 3)), exact_model(found)
    every_KSA = np.stack([np.eye(3)[list(choice)] for choice in itertools.product(range(3), repeat=4)])
    value_K = infinite_horizon.value(found, every_KSA)
    cost_K = np.array([_cost(found, pi_SA, cost_SA) for pi_SA in every_KSA])
    excess: list[float] = []
    last = -np.inf
    for share in (0.2, 0.5, 0.8):
        budget = float(np.quantile(cost_K, share))
        pi_SA, worth = constrained_optimum(*model, cost_SA, found.start_S, 0.8, budget)
        excess += [_cost(found, pi_SA, cost_SA) - budget, float(value_K[cost_K <= budget].max()) - worth]
        excess += [abs(worth - float(infinite_horizon.value(found, pi_SA))), last - worth]
        excess.append(max(0.0, float(((pi_SA > 1e-9).sum(-1) > 1).sum()) - 1))
        last = worth
    return exact([*excess, short_of(float(np.ptp(cost_K)), 0.5)], 1e-8, "largest excess over a bound")


EXPERIMENT.claim(
    "replayed-costs-are-underestimated", "The plain critic's cost is below the policy's by 2 % of the budget."
).compare("bias", {"learner": "plain"}, by=-BIAS, below=True)


EXPERIMENT.claim(
    "conservatism-and-convexity-remove-violations",
    "With both, the share of late iterations over the budget is lower by 0.2 than with neither.",
).compare("violations", {"learner": "plain"}, {"learner": "both"}, by=VIOLATIONS)


EXPERIMENT.claim(
    "conservatism-and-convexity-keep-the-return",
    """With both, the return is lower than with neither by less than a tenth of the best feasible
    return.""",
).compare("return", {"learner": "plain"}, {"learner": "both"}, by=RETURN, below=True)
