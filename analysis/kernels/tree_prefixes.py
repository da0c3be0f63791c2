"""Exact effects of prefixes: resets to states of a token tree, first errors, responses of two segments.

A response of two segments keeps its first tokens from one policy; another writes the rest. `Segments` holds
every pair of a response and a kept length, with its probability, so means and variances of a gradient over
whole responses or over suffixes alone are sums.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Bools, Floats, Ints
from envs.tokens.token_tree import TokenTree
from testbed.errors import UserError
from testbed.exact.response_tree import Leaves, check_policies, enumerate_leaves

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
