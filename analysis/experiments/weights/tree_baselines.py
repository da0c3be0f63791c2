"""Staged prefixes of one trace: baselines of the group, of the stage and of the tree; saturation."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.kernels.on_use import torch
from analysis.kernels.tree_prefixes import Segments, alive, continued, reset_gradient
from analysis.lab import Evidence, Experiment, Floats, Groups, Ints, exact
from testbed.advantages import advantage
from testbed.exact.response_tree import random_policies, random_tree

SOURCE = "Huang et al. (2025), Tree-OPO, arXiv:2509.09284; from secondary notes"
TREES, LENGTH = range(10), 4

EXPERIMENT = Experiment(
    question="Which baseline suits a group whose members continue a trace from stages of it?",
    source=SOURCE,
    differs="exact variance of a group of 4, one member per stage; without sibling constraints, not public",
    margins={"variance by the stage's own value, over that by the group's mean": 0.95},
    systems=("Tree-OPO",),
)


@dataclass(frozen=True)
class Stages:
    """One member per stage of a right trace: its success_K, and the distribution of its responses."""

    segments: tuple[Segments, ...]
    success_K: Floats
    target_SA: Floats
    state_K: Ints


def stages() -> Iterator[Stages]:
    """Yield the stages of the first right trace of random trees, under a random policy."""
    for seed in TREES:
        tree = random_tree(3, LENGTH, seed)
        pi_SA = random_policies(tree, 0.5, seed)[1]
        states, fine_SA = [0], alive(tree)
        for _ in range(LENGTH - 1):
            token = int(fine_SA[states[-1]].argmax())
            states.append(tree.state(0, [*tree.prefix(states[-1])[1], token]))
        starts = np.eye(tree.states)[states]
        segments = tuple(continued(tree, start_S, pi_SA, pi_SA) for start_S in starts)
        value_S = (pi_SA * tree.action_values(pi_SA)).sum(-1)
        target_SA = sum(reset_gradient(tree, pi_SA, start_S) for start_S in starts)
        yield Stages(segments, value_S[states], np.asarray(target_SA), np.array(states))


def patterns(count: int) -> Ints:
    """Return all 2^n patterns of success, [M, n]."""
    return np.array(list(itertools.product([0, 1], repeat=count)), dtype=np.int64)


def moments(found: Stages, adv_MK: Floats) -> tuple[Floats, float]:
    """Return mean and variance of sum_k A_k S_k over a group, with A a function of the pattern of successes.

    Members are independent given their stages, so E over a pattern needs the mean and the second moment of a
    member's score given that it succeeded or failed.
    """
    win_MK = patterns(len(found.success_K))
    law_MK = np.where(win_MK == 1, found.success_K, 1 - found.success_K)
    law_M = law_MK.prod(-1)
    first, second = [], []
    for segments in found.segments:
        for won in (0, 1):
            reward_LK = np.repeat((segments.leaves.reward_L == won)[:, None].astype(float), LENGTH, 1)
            mean_SA, variance = segments.moments(reward_LK, whole=False)
            chance = float((segments.law_LK * reward_LK).sum())
            first.append(mean_SA / max(chance, 1e-300))
            second.append((variance + float((mean_SA**2).sum())) / max(chance, 1e-300))
    K = len(found.success_K)
    mean_KWX = np.array(first).reshape(K, 2, -1)
    square_KW = np.array(second).reshape(K, 2)
    at = (np.arange(K), win_MK)
    member_MKX = adv_MK[..., None] * mean_KWX[at]
    group_MX = member_MKX.sum(1)
    within_M = (adv_MK**2 * (square_KW[at] - (mean_KWX[at] ** 2).sum(-1))).sum(-1)
    mean_X = law_M @ group_MX
    return mean_X, float(law_M @ ((group_MX**2).sum(-1) + within_M) - (mean_X**2).sum())


def advantages(found: Stages) -> Groups:
    """Return the advantages by each baseline for every pattern, [M, K]."""
    from testbed.data.signals import Signals

    win_MK = patterns(len(found.success_K))
    reward = torch.from_numpy(win_MK.astype(np.float64))
    parent = torch.arange(win_MK.shape[1]).sub(1).expand(reward.shape)
    given = Signals(reward, torch.zeros(reward.shape, dtype=torch.int64), parent_B=parent)
    named = {
        name: advantage[name].bind()(given).numpy() for name in ("group_mean", "leave_one_out", "tree_opo")
    }
    return named | {"stage": win_MK - found.success_K}


@EXPERIMENT.claim(
    "tree-order-adds-nothing-to-the-mean",
    statement=(
        "With rewards 0 and 1, in every pattern of a staged group the projection onto the order of the "
        "tree is "
        "the group's mean baseline: its variance is neither lower nor higher."
    ),
)
def same_as_mean() -> Evidence:
    """Return the largest difference between the two advantages."""
    gaps = []
    for found in stages():
        named = advantages(found)
        gaps.append(np.abs(named["tree_opo"] - named["group_mean"]).max())
    return exact(gaps, 1e-12, "largest difference of advantages")


@EXPERIMENT.claim(
    "a-stage-has-its-own-value",
    statement=(
        "Over 10 trees of four stages the stage's own value as baseline is without bias and has at most 0.95 "
        "of the variance of leave-one-out over stages, which is without bias too; the mean over stages "
        "shrinks "
        "the gradient to 3/4."
    ),
    kind="enumerated",
)
def stage_value() -> Evidence:
    """Return biases, and the excess of the ratio of summed variances over 0.95."""
    gaps, spent = [], {"leave_one_out": 0.0, "stage": 0.0}
    for found in stages():
        target_X, named = found.target_SA.ravel(), advantages(found)
        for name, share in {"leave_one_out": 1.0, "stage": 1.0, "group_mean": 0.75}.items():
            mean_X, variance = moments(found, named[name])
            gaps.append(float(np.linalg.norm(mean_X - share * target_X) / np.linalg.norm(target_X)))
            if name in spent:
                spent[name] += variance
    ratio = spent["stage"] / spent["leave_one_out"]
    return exact(
        [*gaps, max(0.0, ratio - 0.95)], 1e-9, f"largest relative bias; ratio of variances {ratio:.3f}"
    )
