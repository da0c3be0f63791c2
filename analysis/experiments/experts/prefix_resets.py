"""Rollouts from prefixes of right traces and resets to data states: the optimum stays, the plateau goes."""

import itertools
from collections.abc import Iterator

import numpy as np

from analysis.lab import Evidence, Experiment, Part, exact, short_of
from envs.arrays import Floats
from envs.tokens.tree import TokenTree
from testbed.exact.prefixes import (
    alive,
    continued,
    correcting,
    reset_gradient,
    reset_reach,
    reset_value,
    roots,
)
from testbed.exact.tree import random_policies, random_tree, reward_tree, softmax

PREFIXRL = "Setlur et al. (2026), Reuse your FLOPs (PrefixRL), arXiv:2601.18795"
TREES, TOKENS = range(12), 3
HALF = 0.5
"""Share of the starts at a prefix; the others are at the prompt."""

EXPERIMENT = Experiment(
    "prefix-resets",
    question="What do rollouts from prefixes of right answers change in what is learned, and how soon?",
    source=PREFIXRL,
    differs="token trees of 3 tokens, tables, exact gradients; a lock that one response in V^H opens",
    margins={"factor of steps per token of a lock": 2.0, "factor with prefixes, at 6 tokens": 1.5},
    systems={
        "PrefixRL (Reuse your FLOPs)": Part(
            "consistency and the separation from plain RL, with exact gradients"
        ),
        "DR-PO (Dataset Reset)": Part(
            "resets to states of right answers; not the learned reward, nor the comparison with PPO and "
            "DPO in "
            "training",
            ("resets-open-a-lock", "resets-keep-the-optimum"),
        ),
    },
)


def prefix_law(tree: TokenTree, pi_SA: Floats, share: float) -> Floats:
    """Return starts of which a share are states, behind the prompt, of right answers in pi's style; [S]."""
    visited_S = np.where(
        roots(tree) > 0, 0.0, reset_reach(tree, with_support(correcting(tree, pi_SA)), roots(tree))
    )
    visited_S = np.where(alive(tree).any(-1), visited_S, 0.0)
    law_S: Floats = share * visited_S / visited_S.sum() + (1 - share) * roots(tree)
    return law_S


def with_support(law_SA: Floats) -> Floats:
    """Return a law with a trace of the uniform one, which ratios and scores need."""
    return (1 - 1e-12) * law_SA + 1e-12 / law_SA.shape[-1]


def worlds() -> Iterator[tuple[TokenTree, Floats]]:
    """Yield random trees of four tokens, and policies."""
    for seed in TREES:
        tree = random_tree(TOKENS, 4, seed)
        yield tree, random_policies(tree, 0.5, seed)[1]


def ascent(tree: TokenTree, start_S: Floats, logits_SA: Floats, steps: int, rate: float) -> Iterator[Floats]:
    """Yield the policies of exact gradient ascent on the value from start_S."""
    for _ in range(steps):
        pi_SA = softmax(logits_SA)
        yield pi_SA
        logits_SA = logits_SA + rate * reset_gradient(tree, pi_SA, start_S)


def lock(length: int) -> TokenTree:
    """Return the tree in which one response is right."""
    return reward_tree(np.eye(1, TOKENS**length)[0], TOKENS, length)


def opened(length: int, share: float) -> int:
    """Return after how many steps of ascent from uniform, rate 1, success at the prompt exceeds 1/2."""
    tree = lock(length)
    uniform_SA = np.zeros((tree.states, tree.actions))
    law_S = prefix_law(tree, softmax(uniform_SA), share) if share else roots(tree)
    for step, pi_SA in enumerate(ascent(tree, law_S, uniform_SA, 20_000, 1.0)):
        if tree.value(pi_SA) > 0.5:
            return step
    return 20_000


@EXPERIMENT.claim()
def masked_prefixes_leave_an_on_policy_gradient() -> Evidence:
    """With a prefix out of the loss the mean gradient of continuations is that of the value from the prefix,
    in all trees; with the prefix in the loss it is off by more than a tenth.
    """
    gaps = []
    for tree, pi_SA in worlds():
        law_S = prefix_law(tree, pi_SA, HALF)
        true_SA = reset_gradient(tree, pi_SA, law_S)
        segments = continued(tree, law_S, pi_SA, pi_SA)
        signal_LK = np.repeat(segments.leaves.reward_L[:, None], tree.horizon, 1)
        masked_SA, whole_SA = (segments.moments(signal_LK, whole=whole)[0] for whole in (False, True))
        norm = np.linalg.norm(true_SA)
        off = float(np.linalg.norm(whole_SA - true_SA) / norm)
        gaps += [float(np.linalg.norm(masked_SA - true_SA) / norm), short_of(off, 0.1)]
    return exact(gaps, 1e-12, "error of the masked mean, and by how much the unmasked one's misses 0.1")


@EXPERIMENT.claim(source=f"{PREFIXRL}, theorem 3.2; from secondary notes")
def resets_keep_the_optimum() -> Evidence:
    """Where half of the starts are prompts, ascent from prefixes ends at the greatest unprefixed value; with
    prefixes alone the rows of the prompt have gradient 0 and, in a table, nothing is carried over.
    """
    gaps = []
    for tree, pi_SA in itertools.islice(worlds(), 4):
        *_, last_SA = ascent(tree, prefix_law(tree, pi_SA, HALF), np.log(pi_SA), 1000, 40.0)
        gaps.append(max(0.0, 1.0 - float(tree.value(last_SA)) - 0.01))
        alone_SA = reset_gradient(tree, pi_SA, prefix_law(tree, pi_SA, 1.0))
        gaps.append(np.abs(alone_SA[roots(tree) > 0]).max())
    return exact(gaps, 0.0, "unprefixed value below 0.99, and gradient at a prompt that is no start")


@EXPERIMENT.claim(
    source=f"{PREFIXRL}, theorem 3.4; Chang et al. (2024), DR-PO; from secondary notes", kind="enumerated"
)
def resets_open_a_lock() -> Evidence:
    """Each further token of a lock at least doubles the steps of exact ascent from the prompt; with half of
    the starts at prefixes the factor falls with every token, below 1.5 at 6, and 6 tokens take less than half
    as many. Their first reward takes 729 episodes on average from the prompt, from prefixes 10.
    """
    plain, prefixed = ([opened(length, share) for length in (3, 4, 5, 6)] for share in (0.0, HALF))
    slower = [short_of(after / before, 2.0) for before, after in itertools.pairwise(plain)]
    tree = lock(6)
    pi_SA = np.full((tree.states, tree.actions), 1.0 / TOKENS)
    episodes = [
        1.0 / reset_value(tree, pi_SA, law_S) for law_S in (roots(tree), prefix_law(tree, pi_SA, 1.0))
    ]
    growth = np.array(prefixed[1:]) / prefixed[:-1]
    falls = [*np.diff(growth), growth[-1] - 1.5, prefixed[-1] / plain[-1] - 0.5]
    known = [abs(episodes[0] / 3**6 - 1), abs(episodes[1] - 10) - 0.1]
    note = (
        f"misses; steps from the prompt {plain}, with prefixes {prefixed}; episodes {np.round(episodes, 1)}"
    )
    return exact([*slower, *falls, *known], 1e-9, note)
