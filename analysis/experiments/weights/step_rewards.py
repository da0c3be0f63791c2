"""Rewards for answers, for thoughts or for tokens: signal, scatter and what they make of traps (TP-GRPO)."""

from collections.abc import Iterator

import numpy as np

from analysis.lab import Evidence, Experiment, Part, exact, short_of
from envs.arrays import Floats
from envs.tokens.tree import TokenTree
from testbed.exact.prefixes import Segments, continued, roots
from testbed.exact.tree import reward_tree

SOURCE = "TP-GRPO (2025), thought-level process rewards; abstract"
TOKENS, LENGTH, THOUGHT = 2, 6, 3
"""Steps of an answer, and of one of its thoughts; token 0 is right at each."""
LEVELS = {"answer": LENGTH, "thought": THOUGHT, "token": 1}

EXPERIMENT = Experiment(
    "step-rewards",
    question="Do rewards for thoughts or tokens learn from fewer samples than rewards for answers?",
    source=SOURCE,
    differs="answers of 6 steps in 2 thoughts, exact means and variances; the checker of thoughts is perfect",
    margins={"samples for thoughts, over answers": 0.6, "samples that count as no fewer": 0.95},
    systems={"TP-GRPO": Part("signal and scatter by level of reward; no generated judge, no training")},
)


def tree() -> TokenTree:
    """Return the tree of all answers; token 0 at every step is right."""
    return reward_tree(np.eye(1, TOKENS**LENGTH)[0], TOKENS, LENGTH)


def skilled(world: TokenTree, right: float) -> Floats:
    """Return the policy that takes each right token with this probability, [S, A]."""
    return np.tile([right, 1 - right], (world.states, 1))


def earned(segments: Segments, width: int) -> Floats:
    """Return what is earned from each step on by thoughts of `width` steps, right as wholes; [L, T].

    A thought of a token that follows no error counts alike: only its own steps are judged. Sums to the number
    of thoughts over LENGTH / width, so that a right answer earns 1 at every level.
    """
    fine_LT = segments.leaves.action_LT == 0
    whole_LC = fine_LT.reshape(len(fine_LT), -1, width).all(-1)
    ahead_LC = np.cumsum(whole_LC[:, ::-1], axis=1)[:, ::-1] * width / LENGTH
    return np.repeat(ahead_LC, width, axis=1)


def samples(right: float, width: int) -> float:
    """Return the variance of a sample's gradient over the square of its mean, a mean baseline at each step.

    That is how many samples make the length of the mean as large as the scatter.
    """
    world = tree()
    pi_SA = skilled(world, right)
    segments = continued(world, roots(world), pi_SA, pi_SA)
    ahead_LT = earned(segments, width)
    mean_SA, second = weighted(segments, ahead_LT - segments.law_L @ ahead_LT)
    return second / float((mean_SA**2).sum()) - 1.0


def weighted(segments: Segments, weight_LT: Floats) -> tuple[Floats, float]:
    """Return mean and second moment of sum_t w_t S_t, the steps of all prefixes sharing a row."""
    leaves, pi = segments.leaves, segments.pi_SA
    law_L = segments.law_L
    one_LTA = np.eye(TOKENS)[leaves.action_LT] - pi[leaves.state_LT]
    each_LTA = weight_LT[..., None] * one_LTA
    mean_TA = np.einsum("l,lta->ta", law_L, each_LTA)
    return mean_TA, float(law_L @ (each_LTA**2).sum((1, 2)))


def worlds() -> Iterator[float]:
    """Yield probabilities of a right token: answers that succeed in 5 % to 74 %."""
    yield from (0.6, 0.7, 0.8, 0.9, 0.95)


@EXPERIMENT.claim(kind="enumerated")
def thought_rewards_need_fewer_samples() -> Evidence:
    """Where a step is right with probability .6 or .7 rewards of thoughts need at most 0.6 of the samples per
    squared signal that rewards of answers need, and rewards of tokens fewer still; from .8 on, where answers
    succeed in a quarter and more, neither needs fewer than 0.95 of them.
    """
    found = {name: np.array([samples(right, width) for right in worlds()]) for name, width in LEVELS.items()}
    ratio_K = found["thought"] / found["answer"]
    finer_K = found["token"] / found["answer"]
    gaps = [*(ratio_K[:2] - 0.6), *(finer_K - ratio_K)[:2], *(0.95 - ratio_K[2:]), *(0.95 - finer_K[2:])]
    return exact(gaps, 0.0, f"misses; thoughts over answers {np.round(ratio_K, 3)}")


@EXPERIMENT.claim(kind="enumerated")
def rewards_of_steps_nearly_point_to_the_answer() -> Evidence:
    """Where steps differ in skill, from .3 to .95, in 20 drawn orders the mean gradients of thought and of
    token rewards have a cosine of at least .75 with that of answer rewards; neither is the nearer one in
    three quarters of the orders.
    """
    world, draw, found = tree(), np.random.default_rng(0), []
    level_S = np.searchsorted(world.level[1:], np.arange(world.states), side="right")
    for _ in range(20):
        right_S = draw.uniform(0.3, 0.95, LENGTH)[level_S]
        pi_SA = np.stack([right_S, 1 - right_S], axis=-1)
        segments = continued(world, roots(world), pi_SA, pi_SA)
        mean = {name: weighted(segments, earned(segments, width))[0] for name, width in LEVELS.items()}
        found.append([cosine(mean[name], mean["answer"]) for name in ("thought", "token")])
    cosine_N2 = np.array(found)
    share = float((cosine_N2[:, 0] > cosine_N2[:, 1]).mean())
    note = f"misses; thoughts are nearer in {share:.2f} of the orders"
    return exact([short_of(float(cosine_N2.min()), 0.75), abs(share - 0.5) - 0.25], 0.0, note)


def cosine(left: Floats, right: Floats) -> float:
    """Return the cosine of the angle between two gradients."""
    return float((left * right).sum() / np.linalg.norm(left) / np.linalg.norm(right))
