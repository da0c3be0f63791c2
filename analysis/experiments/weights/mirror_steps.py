"""How far inner steps of MDPO come to the exact mirror step, and whether they need a trust region as well."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Plot,
    Seeds,
    all_exceed,
    columns,
    difference,
    exact,
    merged,
    of_seeds,
    short_of,
)
from envs.arrays import Floats
from testbed.rng import generator

if TYPE_CHECKING:
    from envs.finite_mdp import FiniteMDP

NAME = "mirror-steps"
SEEDS, INNER, SIZES, RATE, ROUNDS, BUDGET = 12, (1, 5, 20, 50), (0.1, 0.5, 2.0), 1.0, 6, 0.02
"""Inner steps, MDPO's step sizes, learning rate, rounds, and the mean KL of the trust region."""
MARGIN = 0.02
"""Value, as a share of the best less the start's. Set before the table was made."""


def world(seed: int) -> tuple[FiniteMDP, Floats]:
    """A random MDP of 6 states and 4 actions, and a random policy."""
    from envs.mdps import garnet

    found = garnet(states=6, actions=4, branching=3, seed=seed, discount=0.9)
    return found, 0.05 + 0.8 * generator(seed, NAME).dirichlet(np.ones(4), size=6)


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return KL to the exact step after a first round, and the value after six, by step size, inner steps and
    trust region.
    """
    from envs import infinite_horizon
    from testbed.offline.tabular import greedy, optimal_q

    for seed, size in itertools.product(seeds, SIZES):
        found, start_SA = world(seed)
        best = float(infinite_horizon.value(found, greedy(optimal_q(found))[0]))
        first = float(infinite_horizon.value(found, start_SA))
        for inner in (*INNER, 0):
            distance, end_SA = six_rounds(found, start_SA, inner, size)
            value = (float(infinite_horizon.value(found, end_SA)) - first) / (best - first)
            update = f"{inner} steps" if inner else "trust region"
            yield columns((seed,), size=size, update=update, distance=distance, value=value)


def six_rounds(found: FiniteMDP, pi_SA: Floats, inner: int, size: float) -> tuple[float, Floats]:
    """Return the first round's KL to the exact step, and the last policy; no inner steps: trust regions."""
    from testbed.exact.bandit_update import inner_steps
    from testbed.exact.policy_steps import advantage, mirror_step
    from testbed.offline.tabular import kl, within_kl

    gaps = []
    for _ in range(ROUNDS):
        adv_SA = advantage(found, pi_SA)
        if inner:
            new_SA = np.exp(inner_steps("mdpo", pi_SA, adv_SA, steps=inner, rate=RATE, step_size=size)[-1])
        else:
            new_SA = within_kl(pi_SA[None], adv_SA[None], BUDGET)[0]
        gaps.append(float(kl(new_SA[None], mirror_step(pi_SA, adv_SA, size)[None]).mean()))
        pi_SA = new_SA
    return gaps[0], pi_SA


EXPERIMENT = Experiment(
    NAME,
    question="How many inner steps bring MDPO to the mirror step, and does it need a trust region?",
    source="Tomar et al. (2020), MDPO, arXiv:2005.09814",
    differs="random MDPs with exact advantages; the loss's expectation is followed, state by state",
    compute=of_seeds(NAME, rows, SEEDS, {"rate": RATE, "rounds": ROUNDS, "trust region": BUDGET}),
    keys=("run", "seed", "size", "update"),
    metrics=("distance", "value"),
    margins={"share of the possible gain": MARGIN, "KL to the mirror step that counts as there": 1e-3},
    figure=Plot(
        "distribution",
        x="update",
        y="value",
        arm=("size: step size",),
        names={"1 steps": "1 step"},
        y_label="share of the possible gain, 6 rounds",
    ),
    systems=("MDPO",),
)


@EXPERIMENT.claim(
    "mdpo-minimizer-is-the-mirror-step-and-improves",
    source="Tomar et al. (2020), equation 7; monotonicity as in Xiao (2022), lemma 7",
    statement=(
        "In 6 random MDPs the expected update of MDPO's loss is zero at mu exp(t A) / Z and nowhere near mu, "
        "and that step raises the value of every state, for t from 0.1 to 10."
    ),
)
def minimizer() -> Evidence:
    """Return updates at the step, what they lack of 1e-3 at mu, and falls of a state's value."""
    from envs import infinite_horizon
    from testbed.exact.bandit_update import expected_update
    from testbed.exact.policy_steps import advantage, mirror_step

    gaps = []
    for seed in range(6):
        found, mu_SA = world(seed)
        adv_SA, value_S = advantage(found, mu_SA), infinite_horizon.state_value(found, mu_SA)
        for size in (0.1, 1.0, 10.0):
            step_SA = mirror_step(mu_SA, adv_SA, size)
            update = expected_update("mdpo", np.log(step_SA), mu_SA, adv_SA, step_size=size)
            at_mu = expected_update("mdpo", np.log(mu_SA), mu_SA, adv_SA, step_size=size)
            gaps += [float(np.abs(update).max()), short_of(float(np.abs(at_mu).max()), 1e-3)]
            gaps.append(max(0.0, float((value_S - infinite_horizon.state_value(found, step_SA)).max())))
    return exact(gaps, 1e-10, "largest update at the step, or fall of a value")


@EXPERIMENT.claim(
    "off-policy-mdpo-ends-where-sac-does",
    source="Tomar et al. (2020), section 4.2: SAC as the special case; Haarnoja et al. (2018)",
    statement=(
        "With soft Q and entropy alpha the mirror step ends at pi = exp(Q / alpha) / Z for step sizes 0.5 "
        "and 5 as for infinite ones, which are SAC's; without the entropy in Q it ends elsewhere."
    ),
)
def sac() -> Evidence:
    """Return distances of the fixed points over 4 MDPs, and what a Q without entropy lacks of 0.01."""
    from envs import infinite_horizon
    from testbed.exact.policy_steps import soft_mirror_step, soft_q

    gaps, alpha = [], 0.5
    for seed in range(4):
        found, start_SA = world(seed)
        ends = {}
        for size, soft in ((0.5, True), (5.0, True), (np.inf, True), (np.inf, False)):
            pi_SA = start_SA
            for _ in range(400 if size < 1 else 200):
                q_SA = soft_q(found, pi_SA, alpha) if soft else infinite_horizon.q_value(found, pi_SA)
                pi_SA = soft_mirror_step(pi_SA, q_SA, size, alpha)
            ends[size, soft] = pi_SA
        wanted_SA = soft_mirror_step(start_SA, soft_q(found, ends[np.inf, True], alpha), np.inf, alpha)
        gaps += [float(np.abs(ends[size, True] - wanted_SA).max()) for size in (0.5, 5.0, np.inf)]
        gaps.append(short_of(float(np.abs(ends[np.inf, False] - wanted_SA).max()), 0.01))
    return exact(gaps, 1e-8, "largest distance of a probability from SAC's fixed point")


EXPERIMENT.claim(
    "twenty-inner-steps-reach-the-mirror-step",
    "After 20 inner steps on one batch the mean KL to the exact mirror step is below 0.001.",
).compare("distance", {"update": "20 steps"}, by=0.001, below=True, over={"size": 0.5})

EXPERIMENT.claim(
    "inner-steps-come-nearer-where-the-rate-suits-the-step-size",
    statement=(
        "At step sizes 0.5 and 2 and learning rate 1, KL to the exact step is at least halved from 1 inner "
        "step to 5, and from 5 to 50, on average of its logarithm."
    ),
)(
    all_exceed(
        math.log(2),
        "fall of log KL",
        lambda table: merged(
            **{
                f"{few} to {many}": difference(
                    table,
                    "distance",
                    {"update": f"{few} steps"},
                    {"update": f"{many} steps"},
                    size=SIZES[1:],
                    log=True,
                )
                for few, many in ((1, 5), (5, 50))
            }
        ),
    )
)

EXPERIMENT.claim(
    "inner-steps-overshoot-small-step-sizes",
    statement=(
        "At step size 0.1, a tenth of the learning rate, 20 inner steps end twice as far from the exact step "
        "as 1 does, and after six rounds with 0.1 less of the gain than a trust region."
    ),
)(
    all_exceed(
        0.0,
        "log KL less log 2, and loss of value less 0.1",
        lambda table: merged(
            far={
                run: x_N - math.log(2)
                for run, x_N in difference(
                    table, "distance", {"update": "20 steps"}, {"update": "1 steps"}, size=0.1, log=True
                ).items()
            },
            lost={
                run: x_N - 0.1
                for run, x_N in difference(
                    table, "value", {"update": "trust region"}, {"update": "20 steps"}, size=0.1
                ).items()
            },
        ),
    )
)

EXPERIMENT.claim(
    "mdpo-needs-no-trust-region",
    """At step sizes 0.5 and 2 it has, with 20 inner steps and after six rounds, at most 0.02 less of
    the gain than a trust region.""",
).compare("value", {"update": "20 steps"}, {"update": "trust region"}, by=-MARGIN, over={"size": SIZES[1:]})
