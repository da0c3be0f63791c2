"""Responses of two segments: retries from the first error, teachers' corrections, a foreign second half."""

from collections.abc import Iterator

import numpy as np

from analysis.lab import Evidence, Experiment, Part, exact, short_of
from envs.arrays import Floats
from envs.tokens.tree import TokenTree
from testbed.exact.prefixes import (
    Segments,
    alive,
    continued,
    correcting,
    first_error,
    pivots,
    reset_gradient,
    reset_reach,
    reset_value,
    roots,
    spliced,
)
from testbed.exact.tree import random_policies, random_tree, softmax

R3L, SCOPE, SOPHIA = (
    "R3L; shiweijiezero/R3L d503f6c, docs",
    "SCOPE (2026), Recycling failures, arXiv:2602.24110; abstract",
    "SOPHIA (2025), semi-off-policy reinforcement learning for vision-language slow thinking; abstract",
)
TREES, LENGTH = range(12), 4

EXPERIMENT = Experiment(
    "spliced-segments",
    question="What do responses bring whose second part is a retry, a correction or another model's?",
    source=SCOPE,
    differs="random trees of 3 tokens and 4 steps; first errors are those behind which no answer is right",
    margins={
        "variance of suffix credit, over whole": 0.7,
        "log-ratio of corrections, over that of whole answers": 0.8,
        "signal per sample, foreign over own": 2.0,
    },
    systems={
        "SCOPE (Recycling Failures)": Part(
            "ratio jump and diversity of corrections; not training, nor a learned process reward",
            ("corrections-jump-less-and-keep-diversity", "corrections-weighted-one-are-biased"),
        ),
        "R³L": Part(
            "bias and variance of pivotal credit, and amplification",
            ("retries-are-on-policy-behind-their-pivot", "amplified-successes-scale-the-gradient"),
        ),
        "SOPHIA": Part(
            "segment-wise importance weights with exact gradients; not training",
            ("foreign-suffixes-need-their-own-ratio-alone", "foreign-suffixes-pay-where-success-is-rare"),
        ),
    },
)


def worlds(hard: float = 0.0) -> Iterator[tuple[TokenTree, Floats]]:
    """Yield random trees with policies; `hard` lowers the logits of tokens that can still be right."""
    for seed in TREES:
        tree = random_tree(3, LENGTH, seed)
        pi_SA = random_policies(tree, 0.5, seed)[1]
        yield tree, softmax(np.log(pi_SA) - hard * right(tree))


def right(tree: TokenTree) -> Floats:
    """Return 1 for last tokens that end in a right answer, [S, A]."""
    last_S = np.arange(tree.states) % tree.nodes >= tree.level[tree.horizon - 1]
    return np.asarray(alive(tree) & last_S[:, None], dtype=np.float64)


def credit(segments: Segments) -> Floats:
    """Return the reward of every response, for each kept length; [L, K]."""
    return np.repeat(segments.leaves.reward_L[:, None], LENGTH, 1)


def off(found_SA: Floats, target_SA: Floats) -> float:
    """Return the error of a gradient relative to the norm of the target."""
    return float(np.linalg.norm(found_SA - target_SA) / np.linalg.norm(target_SA))


@EXPERIMENT.claim(source=R3L, kind="enumerated")
def retries_are_on_policy_behind_their_pivot() -> Evidence:
    """With credit behind the first error alone, retries have the mean gradient of the value from these
    states; whole-response credit is off by more than 0.2 of its norm, and over all trees has its variance at
    more than 1/0.7.
    """
    gaps, spent = [], np.zeros(2)
    for tree, pi_SA in worlds():
        law_S = pivots(tree, pi_SA)
        law_S = law_S / law_S.sum()
        segments, target_SA = continued(tree, law_S, pi_SA, pi_SA), reset_gradient(tree, pi_SA, law_S)
        centered_LK = credit(segments) - reset_value(tree, pi_SA, law_S)
        for index, whole in enumerate((False, True)):
            mean_SA, variance = segments.moments(centered_LK, whole=whole)
            spent[index] += variance
            error = off(mean_SA, target_SA)
            gaps.append(short_of(error, 0.2) if whole else error)
    ratio = spent[0] / spent[1]
    return exact(
        [*gaps, max(0.0, ratio - 0.7)], 1e-12, f"error, misses; variance, suffix over whole {ratio:.3f}"
    )


@EXPERIMENT.claim(source=R3L)
def amplified_successes_scale_the_gradient() -> Evidence:
    """With rewards 0 and 1, advantage alpha = 3 for successes and minus the group's mean for failures scale
    the policy gradient by alpha + p (G - 1)/G, its direction unchanged, p the success of the prompt; relative
    to the gradient groups of 3 scatter less so, with alpha 3, than with the mean alone, in 4 trees.
    """
    from testbed.exact.group import group_report
    from testbed.exact.report import Bench

    gaps = []
    for seed in range(4):
        tree = random_tree(3, 2, seed)
        pi_SA = random_policies(tree, 0.5, seed)[1]
        bench, p = Bench(tree, pi_SA, pi_SA), float(tree.value(pi_SA))
        raised, plain = (
            group_report("reinforce", bench, size=3, advantage=name)
            for name in ("positive_amplified", "group_mean")
        )
        gaps.append(off(raised.mean_SA, (3 + 2 * p / 3) * tree.gradient(pi_SA)))
        scatter = [each.variance / float((each.mean_SA**2).sum()) for each in (raised, plain)]
        gaps.append(max(0.0, scatter[0] - scatter[1]))
    return exact(gaps, 1e-12, "error of the mean, and of the order of relative deviations")


@EXPERIMENT.claim(kind="enumerated")
def corrections_jump_less_and_keep_diversity() -> Evidence:
    """A failure corrected from its first error on has at most 0.8 of the expected |log pi| of the teacher's
    part alone of a whole answer by the same teacher, and over 12 trees right answers are at least 1.1 times
    as diverse (exponential of their entropy) as the teacher's greedy ones.
    """
    jump, many = np.zeros(2), np.zeros(2)
    for tree, pi_SA in worlds():
        teacher_SA = sharpened(correcting(tree, pi_SA))
        mended = spliced(tree, pi_SA, teacher_SA)
        whole = continued(tree, roots(tree), teacher_SA, pi_SA)
        logp_LT = np.log(pi_SA)[mended.leaves.state_LT, mended.leaves.action_LT]
        foreign_LK = (mended.trained(whole=False) * -logp_LT[:, None]).sum(-1)
        failed = float(pivots(tree, pi_SA).sum())
        own_L = np.where(first_error(tree, mended.leaves) == LENGTH, mended.leaves.probability(pi_SA), 0.0)
        mended_LK = mended.law_LK - np.eye(1, LENGTH)[0] * own_L[:, None]
        jump += [(mended_LK * foreign_LK).sum() / failed, (whole.law_LK * foreign_LK).sum()]
        many += [np.exp(entropy(mended.law_L)), np.exp(entropy(whole.law_L))]
    ratios = jump[0] / jump[1], many[0] / many[1]
    gaps = [max(0.0, ratios[0] - 0.8), short_of(ratios[1], 1.1)]
    return exact(gaps, 0.0, f"misses; ratio of jumps {ratios[0]:.3f}, of diversities {ratios[1]:.3f}")


def sharpened(law_SA: Floats) -> Floats:
    """Return the greedy choice of a law in every state, [S, A]."""
    return np.eye(law_SA.shape[-1])[law_SA.argmax(-1)]


def entropy(law_L: Floats) -> float:
    """Return the entropy of a law in nats."""
    return float(-(law_L * np.log(np.where(law_L > 0, law_L, 1.0))).sum())


@EXPERIMENT.claim(kind="enumerated")
def corrections_weighted_one_are_biased() -> Evidence:
    """Corrected responses that are trained on as if the policy had written them have a mean gradient off by
    more than half the policy gradient's norm, in every tree; all of them being right, a baseline of their own
    mean leaves none.
    """
    gaps = []
    for tree, pi_SA in worlds():
        mended = spliced(tree, pi_SA, correcting(tree, pi_SA))
        mean_SA, _ = mended.moments(credit(mended), whole=True)
        gaps.append(short_of(off(mean_SA, tree.gradient(pi_SA)), 0.5))
        flat_SA, _ = mended.moments(credit(mended) - float(mended.law_L @ mended.leaves.reward_L), whole=True)
        gaps.append(np.abs(flat_SA).max())
    return exact(gaps, 1e-12, "misses of 0.5, and the centered gradient")


def halves(tree: TokenTree, pi_SA: Floats, rest_SA: Floats) -> Segments:
    """Return responses whose first two tokens are pi's and whose rest is another model's."""
    level_S = np.arange(tree.states) % tree.nodes
    middle_S = (level_S >= tree.level[2]) & (level_S < tree.level[3])
    law_S = np.where(middle_S, reset_reach(tree, pi_SA, roots(tree)), 0.0)
    return continued(tree, law_S / law_S.sum(), rest_SA, pi_SA)


def foreign(tree: TokenTree, pi_SA: Floats) -> Floats:
    """Return the other model: half a policy of other logits, half pi given that no token is an error."""
    return 0.5 * random_policies(tree, 0.5, 99)[0] + 0.5 * correcting(tree, pi_SA)


def ratio(segments: Segments, other_SA: Floats) -> Floats:
    """Return the ratio of pi to another policy over the tokens behind what is kept, [L, K]."""
    leaves = segments.leaves
    log_LT = (np.log(segments.pi_SA) - np.log(other_SA))[leaves.state_LT, leaves.action_LT]
    ratio_LK: Floats = np.exp((segments.trained(whole=False) * log_LT[:, None]).sum(-1))
    return ratio_LK


@EXPERIMENT.claim(source=SOPHIA)
def foreign_suffixes_need_their_own_ratio_alone() -> Evidence:
    """Own first half, foreign second half: the ratio of the second half alone gives the policy gradient; a
    ratio that takes the whole for foreign is off by more than a tenth in every tree, and no ratio by more
    than a tenth.
    """
    gaps = []
    for tree, pi_SA in worlds():
        other_SA, target_SA = foreign(tree, pi_SA), tree.gradient(pi_SA)
        segments = halves(tree, pi_SA, other_SA)
        leaves = segments.leaves
        log_LT = (np.log(pi_SA) - np.log(other_SA))[leaves.state_LT, leaves.action_LT]
        whole_LK = np.repeat(np.exp(log_LT.sum(-1))[:, None], LENGTH, 1)
        for weight_LK, least in (
            (ratio(segments, other_SA), 0.0),
            (whole_LK, 0.1),
            (np.ones_like(whole_LK), 0.1),
        ):
            error = off(segments.moments(weight_LK * credit(segments), whole=True)[0], target_SA)
            gaps.append(short_of(error, least) if least else error)
    return exact(gaps, 1e-12, "error of the segment-wise weight, misses of 0.1 by the others")


@EXPERIMENT.claim(source=SOPHIA, kind="enumerated")
def foreign_suffixes_pay_where_success_is_rare() -> Evidence:
    """Where right last tokens are rare (base success below 0.1) a sample with a foreign second half, weighted
    segment-wise, has at least twice the squared signal over variance of an own sample over 12 trees, and more
    than at a base success above 0.2.
    """
    gains, values = [], []
    for hard in (0.0, 3.0):
        spent, success = np.zeros(2), []
        for tree, pi_SA in worlds(hard):
            other_SA = foreign(tree, pi_SA)
            segments, own = halves(tree, pi_SA, other_SA), continued(tree, roots(tree), pi_SA, pi_SA)
            scale = float((tree.gradient(pi_SA) ** 2).sum())
            spent += [
                segments.moments(ratio(segments, other_SA) * credit(segments), whole=True)[1] / scale,
                own.moments(credit(own), whole=True)[1] / scale,
            ]
            success.append(float(tree.value(pi_SA)))
        gains.append(spent[1] / spent[0])
        values.append(float(np.mean(success)))
    gaps = [short_of(gains[1], 2.0), max(0.0, gains[0] - gains[1]), values[1] - 0.1, 0.2 - values[0]]
    return exact(gaps, 0.0, f"misses; gains {np.round(gains, 2)} at success {np.round(values, 3)}")
