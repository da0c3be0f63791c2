"""Enumerate all responses of several turns: the expected update of an objective with an advantage.

A world is a TurnTree, or a TokenTree of a task with one or more turns. Policies are tables [S, A]; their rows
at the tool's places are ignored.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike

from envs.arrays import Bools, Floats, Ints
from envs.tokens.tree import TokenTree, TurnTree
from testbed.data.batch import Batch
from testbed.data.signals import Signals
from testbed.exact.tree import Leaves, enumerate_leaves
from testbed.inspection.effective_weights import effective_weights

Advantage: TypeAlias = Callable[[Signals], torch.Tensor]


@dataclass(frozen=True)
class Responses:
    """All responses that the tool's answers allow; turn_LT is 0 if a task has one turn.

    leaves: their masks are False at the tool's tokens; the last token may be the tool's.
    """

    tree: TokenTree
    leaves: Leaves
    turn_LT: Ints

    def law(self, mu_SA: Floats) -> Floats:
        """Probability of each response under mu and a uniform prompt, [L]."""
        return self.leaves.probability(mu_SA)

    def state_values(self, pi_SA: Floats, discounted_LT: Floats) -> Floats:
        """V [S]: mean, over pi's responses through a state, of the reward they still earn there.

        discounted_LT: the discounted reward to come of each response at each token. 0 at unvisited states.
        """
        leaves, law_L = self.leaves, self.law(pi_SA)
        here_LT = np.where(leaves.mask_LT, law_L[:, None], 0.0)
        mass_S, earned_S = np.zeros((2, self.tree.states))
        np.add.at(mass_S, leaves.state_LT, here_LT)
        np.add.at(earned_S, leaves.state_LT, here_LT * discounted_LT)
        return np.divide(earned_S, mass_S, out=np.zeros_like(mass_S), where=mass_S > 0)

    def score_sum(self, pi_SA: Floats, weight_LT: Floats) -> Floats:
        """Sum over responses and tokens of weight x d log pi / d logits, [S, A]."""
        leaves = self.leaves
        weight_LT = np.where(leaves.mask_LT, weight_LT, 0.0)
        taken_SA = np.zeros_like(pi_SA)
        np.add.at(taken_SA, (leaves.state_LT, leaves.action_LT), weight_LT)
        return taken_SA - taken_SA.sum(-1, keepdims=True) * pi_SA

    def score_norm(self, pi_SA: Floats) -> Floats:
        """|d log pi / d logits|^2 of every token, 0 outside the mask, [L, T]."""
        leaves = self.leaves
        chosen_LT = pi_SA[leaves.state_LT, leaves.action_LT]
        norm_LT = 1 - 2 * chosen_LT + np.square(pi_SA).sum(-1)[leaves.state_LT]
        return np.where(leaves.mask_LT, norm_LT, 0.0)

    def batch(self, pi_SA: Floats, mu_SA: Floats, adv_LT: ArrayLike) -> tuple[torch.Tensor, Batch]:
        """log pi of all responses, and one batch of them; anchor and behavior are mu."""
        leaves = self.leaves
        count = len(leaves.reward_L)
        logp, mu = (torch.from_numpy(leaves.log(law)) for law in (pi_SA, mu_SA))
        made = Batch(
            logp_mu_BT=mu,
            adv_BT=torch.tensor(adv_LT, dtype=torch.float64).expand(mu.shape),
            mask_BT=torch.from_numpy(leaves.mask_LT),
            reward_B=torch.from_numpy(leaves.reward_L),
            group_B=torch.arange(count),
            turn_BT=torch.from_numpy(self.turn_LT),
        )
        return logp, made

    def advantages(self, of: Advantage, value_S: Floats, **more: torch.Tensor) -> Floats:
        """Advantage of every response under the values of a critic, [L, T]."""
        leaves = self.leaves
        signals = Signals(
            torch.from_numpy(leaves.reward_L),
            torch.arange(len(leaves.reward_L)),
            torch.from_numpy(leaves.mask_LT),
            value_BT=torch.from_numpy(value_S[leaves.state_LT]),
            turn_BT=torch.from_numpy(self.turn_LT),
            **more,
        )
        found = of(signals)
        return np.asarray(found if found.dim() == 2 else found[:, None].expand(leaves.mask_LT.shape))


def responses(tree: TokenTree) -> Responses:
    """Enumerate the responses of a tree that are possible with its tool, if it has one."""
    leaves = enumerate_leaves(tree)
    count, width = leaves.mask_LT.shape
    turn_LT = np.zeros((count, width), dtype=np.int64)
    if tree.turn_T:
        turn_LT[:] = tree.turn_T
    if not isinstance(tree, TurnTree):
        return Responses(tree, leaves, turn_LT)
    tool_LT = leaves.mask_LT & np.array(tree.task.tool_T)
    possible_L = (~tool_LT | (leaves.action_LT == tree.answer_S[leaves.state_LT])).all(-1)
    kept = Leaves(*(getattr(leaves, name)[possible_L] for name in Leaves.__dataclass_fields__))
    return Responses(tree, replace(kept, mask_LT=kept.mask_LT & ~tool_LT[possible_L]), turn_LT[possible_L])


@dataclass(frozen=True)
class Estimate:
    """Mean [S, A] and total variance of the gradient of one response of mu; share of tokens clipped."""

    mean_SA: Floats
    variance: float
    cut_share: float


def estimate(
    all_of: Responses, objective: str, pi_SA: Floats, mu_SA: Floats, adv_LT: Floats, **hyper: Any
) -> Estimate:
    """Exact effect of an objective's summed loss on a response drawn from mu.

    The clipped share is that of tokens with an advantage but weight 0, among all with an advantage, under mu.
    """
    logp_LT, batch = all_of.batch(pi_SA, mu_SA, adv_LT)
    weight_LT = effective_weights(objective, logp_LT, batch, **hyper).numpy()
    law_L, norm_LT = all_of.law(mu_SA), all_of.score_norm(pi_SA)
    mean_SA = all_of.score_sum(pi_SA, law_L[:, None] * weight_LT)
    # Every token of a response is in a different state, so the squares of their scores add up.
    second = float(law_L @ (weight_LT**2 * norm_LT).sum(-1))
    live_LT: Bools = all_of.leaves.mask_LT & (np.abs(adv_LT) > 1e-12)
    cut = float(law_L @ (live_LT & (weight_LT == 0)).sum(-1)) / max(float(law_L @ live_LT.sum(-1)), 1e-300)
    return Estimate(mean_SA, second - float(np.square(mean_SA).sum()), cut)


def distance(found_SA: Floats, true_SA: Floats) -> float:
    """Relative distance |found - true| / |true|."""
    return float(np.linalg.norm(found_SA - true_SA) / np.linalg.norm(true_SA))
