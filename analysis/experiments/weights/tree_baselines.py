"""Staged prefixes of one trace: baselines of the group, of the stage and of the tree; saturation.

A response of two segments keeps its first tokens from one policy; another writes the rest. `Segments` holds
every pair of a response and a kept length, with its probability, so means and variances of a gradient over
whole responses or over suffixes alone are sums.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from analysis.kernels.on_use import torch
from analysis.lab import Evidence, Experiment, Floats, Groups, Ints, exact
from envs.arrays import Bools
from envs.tokens.token_tree import TokenTree
from testbed.advantages import advantage
from testbed.errors import UserError
from testbed.exact.response_tree import Leaves, check_policies, enumerate_leaves, random_policies, random_tree

SUCCESS = 0.5
"""Reward from which a response counts as right."""


def children(tree: TokenTree) -> Ints:
    """Return the next state after every token, -1 where the response is over; [S, A]."""
    node_S = np.arange(tree.states) % tree.nodes
    child_SA = np.full((tree.states, tree.actions), -1, dtype=np.int64)
    goes_S = node_S < tree.level[tree.horizon - 1]
    first_S = np.arange(tree.states) - node_S + node_S * tree.going.size + 1
    child_SA[:, tree.going] = np.where(goes_S[:, None], first_S[:, None] + np.arange(tree.going.size), -1)
    return child_SA


def check_dist(tree: TokenTree, start_S: ArrayLike) -> Floats:
    """Return a distribution of starts as float64 [S]; raise UserError if it is not one."""
    law_S = np.asarray(start_S, dtype=np.float64)
    if law_S.shape != (tree.states,) or (law_S < 0).any() or not abs(law_S.sum() - 1.0) < 1e-9:
        raise UserError(
            f"start_S has shape {law_S.shape} and sum {law_S.sum():.6g}; expected a distribution over the "
            f"{tree.states} states of the tree."
        )
    return law_S


def reset_reach(tree: TokenTree, pi_SA: ArrayLike, start_S: ArrayLike) -> Floats:
    """Return d(s), the probability that pi visits a state when started from start_S; [S]."""
    (pi,) = check_policies(tree, pi=pi_SA)
    reach_S, child_SA = check_dist(tree, start_S).copy(), children(tree)
    time_S = np.searchsorted(tree.level[1:], np.arange(tree.states) % tree.nodes, side="right")
    for t in range(tree.horizon - 1):
        here = np.flatnonzero(time_S == t)
        going = child_SA[here] >= 0
        np.add.at(reach_S, child_SA[here][going], (reach_S[here, None] * pi[here])[going])
    return reach_S


def reset_gradient(tree: TokenTree, pi_SA: ArrayLike, start_S: ArrayLike) -> Floats:
    """Return the gradient in the logits of E V^pi(s), s from start_S: d(s) pi(a|s) (Q(s, a) - V(s)), [S, A].

    Source: policy gradient theorem (Sutton et al., 2000) with another start distribution; Kakade & Langford
    (2002).
    """
    (pi,) = check_policies(tree, pi=pi_SA)
    q_SA = tree.action_values(pi)
    centered_SA = q_SA - (pi * q_SA).sum(-1, keepdims=True)
    gradient_SA: Floats = reset_reach(tree, pi, start_S)[:, None] * pi * centered_SA
    return gradient_SA


def alive(tree: TokenTree) -> Bools:
    """Return True for tokens after which a response can still be right, [S, A]."""
    best_SA, child_SA = np.array(tree.reward_SA), children(tree)
    for state in range(tree.states - 1, -1, -1):
        going = child_SA[state] >= 0
        best_SA[state, going] = best_SA[child_SA[state, going]].max(-1)
    return np.asarray(best_SA >= SUCCESS)


@dataclass(frozen=True)
class Segments:
    """Responses with their first tokens kept from one policy, for every kept length at once.

    law_LK: probability of response l with k tokens kept, K = T. weight_LK, scores as in Bench: pi is the
    policy whose gradient is taken.
    """

    tree: TokenTree
    leaves: Leaves
    law_LK: Floats
    pi_SA: Floats

    @property
    def law_L(self) -> Floats:
        """Probability of every response, [L]."""
        whole_L: Floats = self.law_LK.sum(-1)
        return whole_L

    def trained(self, whole: bool) -> Bools:
        """Return the tokens that a loss sees, [L, K, T]: those after the kept ones, or all."""
        time_T = np.arange(self.tree.horizon)
        suffix_KT = time_T >= np.arange(self.law_LK.shape[1])[:, None]
        return self.leaves.mask_LT[:, None] & (np.ones_like(suffix_KT) if whole else suffix_KT)

    def moments(self, signal_LK: Floats, *, whole: bool) -> tuple[Floats, float]:
        """Return mean [S, A] and trace of the covariance of signal times the sum of the trained scores."""
        from envs.kernels import scatter_score  # compiled: figures load no compiler

        leaves, pi = self.leaves, self.pi_SA
        weight_LKT = np.where(self.trained(whole), signal_LK[..., None], 0.0)
        mass_LT = (self.law_LK[..., None] * weight_LKT).sum(1)
        mean_SA = scatter_score(leaves.state_LT[None], leaves.action_LT[None], mass_LT[None], pi[None])[0]
        square_S = (pi**2).sum(-1)
        chosen_LT = pi[leaves.state_LT, leaves.action_LT]
        norm_LT = 1.0 - 2.0 * chosen_LT + square_S[leaves.state_LT]
        second = float((self.law_LK * (weight_LKT**2 * norm_LT[:, None]).sum(-1)).sum())
        return mean_SA, second - float((mean_SA**2).sum())


def continued(tree: TokenTree, start_S: ArrayLike, rest_SA: ArrayLike, pi_SA: ArrayLike) -> Segments:
    """Return responses that start with the prefix of a state drawn from start_S and continue by rest_SA.

    A prefix of k tokens is kept with probability start_S of its state; rest_SA may give tokens probability 0.
    """
    (pi,) = check_policies(tree, pi=pi_SA)
    leaves, law_S = enumerate_leaves(tree), check_dist(tree, start_S)
    step_LT = np.where(leaves.mask_LT, np.asarray(rest_SA)[leaves.state_LT, leaves.action_LT], 1.0)
    ahead_LT = np.cumprod(step_LT[:, ::-1], axis=-1)[:, ::-1]
    law_LK = np.where(leaves.mask_LT, law_S[leaves.state_LT] * ahead_LT, 0.0)
    return Segments(tree, leaves, law_LK, pi)


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
    """Return mean and variance of sum_k A_k S_k over a group, A given by the pattern of successes.

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
    """Return biases, and by how much the ratio of summed variances exceeds 0.95."""
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
