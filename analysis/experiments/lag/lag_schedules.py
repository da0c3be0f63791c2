"""Claims about schedules of equal mean lag: effects of the spread of ages around the mean.

With weights that move along a line, theta_(t-k) = theta_t - k d, the second moment M(k) = E_mu W^2 of a
softmax table is log-convex in the age k: at a state it is sum_a pi(a)^2 exp(A(theta - k d) - theta_a + k d_a)
with a convex log-normalizer A, and sums and products of log-convex functions are log-convex. So E M(age)
grows with the spread of the ages, by Jensen. Near k = 0, M(k) - 1 = k^2 d'Fd, F Fisher's information, so
lag^2 + Var(age) takes the place of lag^2. Where the steps move the weights in directions orthogonal under
Fisher's metric, d_i'F d_j = 0, M(k) - 1 is linear in k, and only the mean age counts.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Floats, Frame, Plot, arm, exact
from envs.tokens.token_tree import TokenTree
from testbed.config.run import Run, grid
from testbed.exact.response_tree import random_tree

LAG, TREES = 4, 5
ORDER = (
    ("exact", "uniform"),
    ("periodic", "uniform"),
    ("uniform", "periodic"),
    ("uniform", "two-point"),
    ("uniform", "geometric"),
)
"""Pairs of age distributions with equal means; the second is at least as spread in the convex order."""
PRESET, LATER = range(16), range(16, 32)
"""Seeds of the claims set before the sweep was run; the later claim is judged on the other seeds."""
MIXED = ("uniform", "periodic")
"""The same ages, either mixed in every batch or equal within a batch."""

TREE = Run(task="tree", prompts=16, group=8, steps=200, learning_rate=3.0, log_every=5)
"""A token tree that synchronous training solves in 200 steps; every ratio's distribution is known exactly."""
SCHEDULES = ("exact", "periodic", "uniform", "two-point", "geometric")


def cells() -> tuple[Run, ...]:
    """Five age distributions of the same mean, two recipes, two lags and 32 seeds."""
    return tuple(
        cell
        for recipe in ("reinforce", "grpo")
        for cell in grid(replace(TREE, recipe=recipe), staleness=SCHEDULES, lag=[4, 16], seed=range(32))
    )


EXPERIMENT = Experiment(
    question="Does it matter how ages are spread around the same mean?",
    source="this project", cells=cells, fresh=range(1000, 1032), keys=("recipe", "staleness", "lag", "seed"),
    metrics=(
        *("exact/value", "mean exact/value", "mean exact/ess_kish_sequence", "min exact/ess_kish_sequence"),
        *("mean staleness/age_mean_token", "mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
    ),
    figure=Plot(
        "distribution", x="staleness: schedule of ages", y="mean exact/value: mean exact value over the run",
        arm=("recipe", "lag"),
    ),
)  # fmt: skip


def age_distributions() -> dict[str, Any]:
    """Return every schedule's distribution of ages at LAG."""
    from testbed.staleness import plan_for

    names = sorted({name for pair in ORDER for name in pair})
    return {name: plan_for(Run(staleness=name, lag=LAG)).distribution for name in names}


def softmax(logits_xSA: Floats) -> Floats:
    """Return the policies of tables of logits."""
    weight_xSA = np.exp(logits_xSA - logits_xSA.max(-1, keepdims=True))
    policy_xSA: Floats = weight_xSA / weight_xSA.sum(-1, keepdims=True)
    return policy_xSA


def moments(tree: TokenTree, logits_SA: Floats, step_KSA: Floats) -> Floats:
    """Return E_mu W^2 [K], pi = softmax(logits), mu the K policies `step` times each age earlier."""
    moment_K: Floats = tree.divergence(softmax(logits_SA)[None], softmax(logits_SA - step_KSA)).second_moment
    return moment_K


@EXPERIMENT.claim(
    "spread-of-ages-raises-the-second-moment",
    source="this project; Jensen's inequality, M is log-convex along a line of softmax weights",
)
def spread_of_ages_raises_the_second_moment() -> Evidence:
    """While weights move along a line, E_mu W^2 is log-convex in the age, so of schedules with equal mean lag
    the more spread one has the smaller exact ESS: exact above periodic = uniform above two-point and
    geometric.
    """
    found, gaps = age_distributions(), []
    longest = max(ages.longest for ages in found.values())
    for seed in range(TREES):
        tree = random_tree(3, 3, seed=seed, end_token=2 if seed % 2 else None)
        rng = np.random.default_rng([seed, 7])
        logits_SA, drift_SA = rng.normal(size=(2, tree.states, tree.actions))
        moment_K = moments(tree, logits_SA, 0.05 * np.arange(longest + 1)[:, None, None] * drift_SA)
        log_K = np.log(moment_K)
        gaps += list(2 * log_K[1:-1] - log_K[:-2] - log_K[2:])
        mean = {name: float(moment_K[ages.age_K] @ ages.share_K) for name, ages in found.items()}
        gaps += [mean[less] / mean[more] - 1 for less, more in ORDER]
    gaps += [max(0.0, abs(ages.mean / LAG - 1) - 1e-12) for ages in found.values()]
    return exact(gaps, 1e-12, f"largest violation over {TREES} trees of 3 tokens, mean lag {LAG}")


@EXPERIMENT.claim(
    "age-variance-adds-to-chi2-when-drift-keeps-its-direction",
    source="this project; second order of E_mu W^2 in the drift",
)
def age_variance_adds_to_chi2_when_drift_keeps_its_direction() -> Evidence:
    """For a small drift along a line, chi^2 of a schedule is 1 + Var(age) / lag^2 times that of the exact
    lag; where every step moves in a direction of its own it is the same for all schedules.
    """
    found, gaps = age_distributions(), []
    longest = max(ages.longest for ages in found.values())
    for seed in range(TREES):
        tree = random_tree(3, 4, seed=seed)
        rng = np.random.default_rng([seed, 8])
        logits_SA, drift_SA = rng.normal(size=(2, tree.states, tree.actions))
        line_KSA = 1e-5 * np.arange(longest + 1)[:, None, None] * drift_SA
        # Step k moves the logits of state k alone, scaled so that all steps have equal Fisher length: state k
        # then contributes k times the same to chi^2.
        one_KSA = np.eye(tree.states)[:longest, :, None] * drift_SA
        length_K = np.sqrt(moments(tree, logits_SA, 1e-4 * one_KSA) - 1)
        turn_KSA = np.cumsum(1e-7 * one_KSA / length_K[:, None, None], axis=0)
        turn_KSA = np.concatenate([np.zeros_like(turn_KSA[:1]), turn_KSA])
        for step_KSA, spread in ((line_KSA, True), (turn_KSA, False)):
            chi2_K = moments(tree, logits_SA, step_KSA) - 1
            for ages in found.values():
                expected = 1 + ages.variance / LAG**2 if spread else 1.0
                gaps.append(abs(float(chi2_K[ages.age_K] @ ages.share_K) / chi2_K[LAG] / expected - 1))
    return exact(gaps, 5e-3, f"largest relative distance over {TREES} trees of 4 tokens, mean lag {LAG}")


AT = {"recipe": "grpo", "lag": 16}
EVEN, SPREAD = {"staleness": "exact"}, {"staleness": "geometric"}


def gain_by_spread(table: Frame) -> pd.Series:
    """Return GRPO's mean value at lag 16 with geometric ages minus that at equal ages, preset seeds."""
    preset, metric = table[~table["seed"].isin(LATER)], "mean exact/value"
    return arm(preset, metric, {**AT, **SPREAD}) - arm(preset, metric, {**AT, **EVEN})


def loss_by_periods(table: Frame) -> pd.Series:
    """Return how much more GRPO loses than REINFORCE when a batch has one age, on the later seeds."""
    later, metric = table[~table["seed"].isin(PRESET)], "mean exact/value"

    def lost(recipe: str) -> pd.Series:
        mixed, equal = (arm(later, metric, {**AT, "recipe": recipe, "staleness": name}) for name in MIXED)
        return mixed - equal

    return lost("grpo") - lost("reinforce")


EXPERIMENT.claim(
    "spread-ages-learn-faster",
    "GRPO on a token tree learns faster with geometric ages than with every sample exactly as old as their "
    "mean, 16 steps: the value averaged over the run is higher.",
    source="this project; set before the sweep was run",
).compare(gain_by_spread, typical="mean")
EXPERIMENT.claim(
    "periodic-ages-hold-the-clip-back",
    "At mean lag 16, ages that are equal within a batch and count up over a period slow GRPO, whose clip "
    "then keeps its center for the period, by more than REINFORCE, against the same ages mixed in every "
    "batch.",
    source="this project, after a look at seeds 0 to 15; judged on seeds 16 to 31",
).compare(loss_by_periods, typical="mean")
