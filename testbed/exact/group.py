"""Gradients of whole batches, exactly: every multiset of n responses to one prompt, with its probability.

The gradient of a batch is the mean over its n responses of sum_t w_t S_t. n independent draws from L
responses make C(L + n - 1, n) multisets instead of L^n tuples.
"""

import math
from itertools import chain, combinations_with_replacement
from typing import Any

import numpy as np
import torch

from envs.arrays import Floats, Ints
from testbed.advantages import advantage as advantages
from testbed.data.signals import Signals
from testbed.errors import UserError
from testbed.exact.gradient_facts import GradientReport, cut_tokens, share
from testbed.exact.gradient_report import Bench, Objective, Signal, resolve

MOST_MULTISETS = 2**19
CHUNK = 2**14
"""Number of batches per evaluation of weights."""


def multisets(leaves: int, size: int) -> tuple[Ints, Floats]:
    """List every multiset of `size` out of `leaves` numbers, [R, n], and its number of orderings, [R].

    Raises UserError with count and limit if there are too many.
    """
    if size < 1:
        raise UserError(f"A batch has 1 response or more, got size {size}.")
    count = math.comb(leaves + size - 1, size)
    if count > MOST_MULTISETS:
        raise UserError(
            f"{size} responses out of {leaves:,} leaves make {count:,} multisets, the limit is "
            f"{MOST_MULTISETS:,}. Take smaller batches, a smaller vocabulary or shorter responses."
        )
    chosen = combinations_with_replacement(range(leaves), size)
    flat = np.fromiter(chain.from_iterable(chosen), dtype=np.int64, count=count * size)
    index_Rn = flat.reshape(count, size)
    orders_R, run_R = np.full(count, float(math.factorial(size))), np.ones(count)
    for i in range(1, size):
        # A run of k equal numbers divides the orderings by k!, one factor at a time.
        run_R = np.where(index_Rn[:, i] == index_Rn[:, i - 1], run_R + 1, 1.0)
        orders_R /= run_R
    return index_Rn, orders_R


def group_report(
    function: Objective,
    bench: Bench,
    *,
    size: int,
    advantage: str | None = None,
    signal: Signal = "R",
    baseline: float = 0.0,
    aggregation: str | None = None,
    advantage_hyper: dict[str, Any] | None = None,
    **hyper: Any,
) -> GradientReport:
    """Exact mean, variance and bias of the gradient of a batch of `size` responses to one prompt.

    Args:
        function: as in gradient_report.
        bench: tree, mu and pi.
        size: responses in a batch.
        advantage: a registered advantage, computed from the group's rewards; None takes `signal`.
        signal: as in gradient_report, where `advantage` is None.
        baseline: a number, only with signal "R-b".
        aggregation: a name in testbed.losses.aggregate; None is the mean over responses of token sums.
        advantage_hyper: hyperparameters of the advantage.
        hyper: hyperparameters of the objective.

    Raises UserError for too many multisets, or an advantage that needs more than a tree has.
    """
    if not isinstance(bench, Bench):
        raise UserError(f"group_report got a {type(bench).__name__}; give it Bench(tree, mu_SA, pi_SA).")
    resolved, name, level = resolve(function)
    index_RB, law_R = batches(bench, size)
    mean = _Moments(bench)
    unit = _Moments(bench)
    value, cut_2 = 0.0, np.zeros(2)
    for start in range(0, len(law_R), CHUNK):
        rows, law = index_RB[start : start + CHUNK], law_R[start : start + CHUNK]
        if advantage is None:
            adv = bench.advantage(signal, baseline)[rows]
        else:
            adv = group_advantage(bench, rows, advantage, advantage_hyper or {})
        weight = bench.batch_weights(resolved, rows, adv, aggregation, **hyper)
        mean.add(rows, law, weight)
        value += float(law @ bench.batch_values(resolved, rows, adv, aggregation, **hyper))
        cut_2 += law @ cut_tokens(weight, adv, bench.leaves.mask_LT[rows]).sum(1)
        ones = bench.leaves.mask_LT[rows].astype(np.float64)
        unit.add(rows, law, bench.batch_weights(resolved, rows, ones, aggregation, **hyper))
    mean_SA = bench.scatter(mean.weight_LT)
    return GradientReport(
        objective=name, signal=advantage or signal, baseline=baseline if signal == "R-b" else 0.0,
        size=size, mean_SA=mean_SA, target_SA=bench.target_SA,
        variance=mean.square - float((mean_SA**2).sum()),
        split=bench.split(mean_SA, level, "R" if advantage else signal),
        shift_SA=bench.scatter(unit.weight_LT), value=value, clip_share=share(*cut_2),
    )  # fmt: skip


def batches(bench: Bench, size: int) -> tuple[Ints, Floats]:
    """Return every batch of one prompt's responses, [R, B], and its probability, [R]."""
    prompts = int(bench.leaves.prompt_L[-1]) + 1
    each = len(bench.law_L) // prompts
    index_Rn, orders_R = multisets(each, size)
    indices, laws = [], []
    for prompt in range(prompts):
        index_RB = index_Rn + prompt * each
        given_RB = bench.law_L[index_RB] * prompts  # conditional on the prompt
        indices.append(index_RB)
        laws.append(orders_R * given_RB.prod(-1) / prompts)
    return np.concatenate(indices), np.concatenate(laws)


class _Moments:
    """Sums over batches: weight_LT, with scatter E g, and square, E|g|^2."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.square = bench, 0.0
        self.weight_LT = np.zeros(bench.leaves.state_LT.shape)

    def add(self, index_RB: Ints, law_R: Floats, weight_RBT: Floats) -> None:
        # A response may stand in a batch more than once, and += would add it once.
        np.add.at(self.weight_LT, index_RB, law_R[:, None, None] * weight_RBT)
        self.square += float(law_R @ squared_norm(self.bench, index_RB, weight_RBT))


def squared_norm(bench: Bench, index_RB: Ints, weight_RBT: Floats) -> Floats:
    """|sum_b sum_t w_bt S_bt|^2, [R]: scores of two responses overlap only at shared prefixes of equal depth.

    <S(s, a), S(s, a')> = 1[a = a'] - pi(a) - pi(a') + sum pi^2.
    """
    leaves = bench.leaves
    state, action = leaves.state_LT[index_RB], leaves.action_LT[index_RB]
    weight = np.where(leaves.mask_LT[index_RB], weight_RBT, 0.0)
    chosen = np.exp(bench.logp_pi_LT[index_RB])
    size = index_RB.shape[1]
    total_R = np.zeros(len(index_RB))
    for i in range(size):
        for j in range(i, size):
            same = action[:, i] == action[:, j]
            inner: Floats = same - chosen[:, i] - chosen[:, j] + bench.square_S[state[:, i]]
            meet = state[:, i] == state[:, j]
            pair_R = np.where(meet, weight[:, i] * weight[:, j] * inner, 0.0).sum(-1)
            total_R += pair_R if i == j else 2.0 * pair_R
    return total_R


def group_advantage(bench: Bench, index_RB: Ints, name: str, hyper: dict[str, Any]) -> Floats:
    """Return a registered advantage of batches of numbered responses, [R, B, T].

    Raises UserError for an advantage that needs more than a token tree has.
    """
    entry = advantages[name]
    known = {"mask_BT", "log_rho_BT"}
    missing = set(entry.promises.get("needs", ())) - known
    if missing:
        raise UserError(
            f"advantage '{name}' needs {', '.join(sorted(missing))}, which a token tree does not have."
        )
    leaves = bench.leaves
    mask_BT = torch.from_numpy(leaves.mask_LT[index_RB])
    log_rho = torch.from_numpy((bench.logp_pi_LT - bench.logp_mu_LT)[index_RB])
    reward_B = torch.from_numpy(leaves.reward_L[index_RB])
    group_B = torch.zeros(index_RB.shape, dtype=torch.int64)
    given = Signals(reward_B, group_B, mask_BT=mask_BT, log_rho_BT=log_rho)
    adv = entry.bind(**hyper)(given)
    per_token = adv if entry.promises.get("per_token") else adv[..., None]
    numbers: Floats = torch.where(mask_BT, per_token, torch.zeros_like(per_token)).numpy()
    return numbers
