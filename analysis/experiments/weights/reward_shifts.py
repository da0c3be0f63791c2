"""Rewards shifted by a prompt's constant: P3O does not see it; what a greedy baseline (ReMax) does
about it.
"""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Part,
    Plot,
    Seeds,
    all_exceed,
    exact,
    must_exceed,
    of_seeds,
    runs_of,
    short_of,
)
from envs.arrays import Floats
from testbed.exact.tree import random_policies, reward_tree, softmax
from testbed.rng import generator

NAME = "reward-shifts"
SEEDS, ANSWERS, PEAKS = 24, 8, (0.0, 1.0, 3.0)
"""Replications, answers of the bandit, and how much the reward tilts the policy."""
LAWS = ("sparse", "dense", "shifted")
"""Of rewards: 1 of 4 answers pays 1; uniform on [0, 1]; the same plus 5."""


def rewards(law: str, seed: int) -> Floats:
    """Return the rewards of 8 answers."""
    rng = generator(seed, f"{NAME} {law}")
    if law == "sparse":
        return np.asarray(rng.permutation(np.arange(ANSWERS) < ANSWERS // 4), dtype=np.float64)
    return rng.random(ANSWERS) + (5.0 if law == "shifted" else 0.0)


def variances(seed: int, law: str, peak: float) -> dict[str, float]:
    """Return the trace of the variance of one sample's gradient under each baseline, exactly."""
    from testbed.exact.gradient_report import Bench, gradient_report

    reward_A = rewards(law, seed)
    centered_A = reward_A - reward_A.mean()
    pi_SA = softmax(generator(seed, f"{NAME} policy").normal(size=(1, ANSWERS)) + peak * centered_A)
    bench = Bench(reward_tree(reward_A, ANSWERS, 1), pi_SA, pi_SA)
    given = {"none": 0.0, "mean": float(pi_SA[0] @ reward_A), "greedy": float(reward_A[pi_SA[0].argmax()])}
    found = {
        name: gradient_report("reinforce", bench, signal="R-b", baseline=b).variance
        for name, b in given.items()
    }
    return {**found, "optimal": gradient_report("reinforce", bench, signal="R-b").variance}


def rows(seeds: Seeds) -> pd.DataFrame:
    """Return the variance over that without baseline, by law of rewards, peak of the policy and baseline."""
    rows_ = []
    for seed in seeds:
        for law in LAWS:
            for peak in PEAKS:
                found = variances(seed, law, peak)
                rows_ += [
                    (seed, law, peak, name, x / found["none"]) for name, x in found.items() if name != "none"
                ]
    return pd.DataFrame(rows_, columns=["seed", "law", "peak", "baseline", "variance"])


EXPERIMENT = Experiment(
    NAME,
    question=(
        "What do a prompt's constant in the reward, and a greedy baseline, do to a gradient and its "
        "variance?"
    ),
    source="Wu et al. (2023), P3O, arXiv:2310.00212; Li et al. (2023), ReMax, arXiv:2310.10505",
    differs="exact gradients on trees and bandits; no critic, no memory, no training",
    compute=of_seeds(NAME, rows, SEEDS, {"answers": ANSWERS, "objective": "reinforce"}),
    keys=("run", "seed", "law", "peak", "baseline"),
    metrics=("variance",),
    margins={"variance over that without baseline": 1.0},
    figure=Plot(
        "final by setting", x="law: law of rewards", y="variance: variance over that without baseline",
        arm=("baseline",), log="y",
    ),
    systems={
        "P3O": Part(
            "the invariance, on trees; no frontier of KL and reward",
            claims=("p3o-does-not-see-a-prompt-constant",),
        ),
        "ReMax": Part(
            "variance of the gradient by baseline; memory and arithmetic: see critic-memory",
            claims=("greedy-baseline-pays-within-twice-the-best", "greedy-baseline-lowers-the-variance"),
        ),
    },
)  # fmt: skip


def _saved(table: pd.DataFrame, law: str) -> dict[str, Floats]:
    """1 less the ratio of variances under the greedy baseline, for each peak and run."""
    rows_ = table[(table["law"] == law) & (table["baseline"] == "greedy")]
    found = {}
    for run in runs_of(table):
        for peak in PEAKS:
            here = rows_[(rows_["run"] == run) & (rows_["peak"] == peak)]
            found[f"{law}, peak {peak:g}, {run}"] = 1.0 - here["variance"].to_numpy(dtype=float)
    return found


@EXPERIMENT.claim(source="Wu et al. (2023), proposition on equivalent rewards")
def p3o_does_not_see_a_prompt_constant() -> Evidence:
    """Adding 3 or -10 to all rewards of a prompt changes mean and variance of P3O's gradient of a group by
    nothing, with either clip, on and off policy. PPO with the reward as advantage changes its mean off
    policy, and on policy its variance alone.
    """
    gaps = []
    for drift in (0.0, 0.5):
        for objective, hyper in (("p3o", {"clip": "separate"}), ("p3o", {"clip": "joint"}), ("ppo_clip", {})):
            plain, *moved = (_group(drift, shift, objective, hyper) for shift in (0.0, 3.0, -10.0))
            for mean_SA, variance in moved:
                away = float(np.abs(mean_SA - plain[0]).max())
                if objective == "p3o":
                    gaps += [away, abs(variance - plain[1])]
                else:
                    gaps += [
                        short_of(away, 0.01) if drift else away,
                        short_of(abs(variance / plain[1] - 1), 1.0),
                    ]
    return exact(gaps, 1e-11, "largest change of P3O's mean or variance; what PPO's change lacks")


def _group(drift: float, shift: float, objective: str, hyper: dict[str, Any]) -> tuple[Floats, float]:
    """Mean and variance of the gradient of two responses on a tree whose rewards are shifted."""
    from testbed.exact.gradient_report import Bench
    from testbed.exact.group import group_report

    tree = reward_tree(generator(0, NAME).random(9) + shift, 3, 2)
    found = group_report(objective, Bench(tree, *random_policies(tree, drift, 1)), size=2, **hyper)
    return found.mean_SA, found.variance


@EXPERIMENT.claim(source="derived here from Greensmith, Bartlett & Baxter (2004)")
def greedy_baseline_pays_within_twice_the_best() -> Evidence:
    """The variance under a baseline b is the least one plus (b - b*)^2 times a curvature: the greedy reward
    lowers it if and only if it lies between 0 and 2 b*. Both happen among 16 bandits.
    """
    from testbed.exact.gradient_report import Bench, gradient_report, optimal_baselines

    gaps, sides = [], set()
    for seed, peak in product(range(8), (0.0, 3.0)):
        reward_A = rewards("sparse", seed)
        logit_A = generator(seed, f"{NAME} policy").normal(size=ANSWERS) + peak * reward_A
        pi_SA = softmax(logit_A[None])
        bench = Bench(reward_tree(reward_A, ANSWERS, 1), pi_SA, pi_SA)
        best, b = optimal_baselines(bench, "reinforce"), float(reward_A[pi_SA[0].argmax()])
        least, none, greedy = (
            gradient_report("reinforce", bench, signal="R-b", baseline=x).variance
            for x in (best.scalar, 0.0, b)
        )
        for found, x in ((greedy, b), (none, 0.0)):
            gaps.append(abs(found - least - (x - best.scalar) ** 2 * best.curvature))
        if b:
            sides.add(b < 2 * best.scalar)
            gaps.append(float((greedy < none) != (b < 2 * best.scalar)))
    gaps.append(2.0 - len(sides))
    return exact(gaps, 1e-11, "largest distance from the parabola or the rule")


@EXPERIMENT.claim()
def greedy_baseline_lowers_the_variance(table: pd.DataFrame) -> Evidence:
    """For each law of rewards and each policy the greedy baseline has less variance than none."""
    return must_exceed(
        {k: x_N for law in LAWS for k, x_N in _saved(table, law).items()}, 0.0, "variance saved"
    )


EXPERIMENT.claim(
    "greedy-baseline-takes-out-a-shift",
    statement="With rewards shifted by 5 it leaves at most a tenth of the variance without baseline.",
)(all_exceed(0.9, "variance saved less 0.9", _saved, "shifted"))
