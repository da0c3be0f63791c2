"""All responses of a small token task: leaves of the tree, their probabilities, exact divergences.

A tree is an `envs.tokens.token_tree.TokenTree`; a policy is a table of probabilities [S, A], one row per
prefix (the softmax of a table of logits, or a transformer's distributions).
Both policies must be positive everywhere, as ratios and scores require.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Bools, Floats, Ints
from envs.tokens.token_task import TokenTask, every_response
from envs.tokens.token_tree import MOST_ENTRIES, TokenTree
from testbed.errors import UserError

MOST_TOKENS = 2**23
"""Largest number of tokens, summed over responses, to enumerate; about 100 bytes each at the peak."""
BYTES_PER_TOKEN = 100


class RewardTable(TokenTask):
    """One empty prompt, V tokens, responses of at most T tokens; a table holds the reward of each response.

    reward_L: V^T numbers, response y at index sum_t y_t V^(T - t); tokens after an end token count as 0.
    """

    prompt_length = 1

    def __init__(self, reward_L: ArrayLike, vocabulary: int, length: int, end_token: int | None = None):
        self.symbols = tuple(str(v) for v in range(vocabulary))
        self.response_length, self.end_token = length, end_token
        self.reward_L = np.asarray(reward_L, dtype=np.float64)
        if self.reward_L.shape != (vocabulary**length,):
            raise UserError(
                f"reward_L has shape {self.reward_L.shape}, expected [V^T] = [{vocabulary**length}] for "
                f"vocabulary {vocabulary} and length {length}."
            )
        if not np.isfinite(self.reward_L).all():
            raise UserError("reward_L holds a number that is not finite; a reward table needs numbers.")

    def prompts(self, rng: np.random.Generator, n: int) -> Ints:  # noqa: ARG002
        """The one prompt, [N, 1]."""
        return np.zeros((n, 1), dtype=np.int64)

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:  # noqa: ARG002
        """The table's entry of each response, [N]."""
        base_T = len(self.symbols) ** np.arange(self.response_length - 1, -1, -1)
        return self.reward_L[(np.where(mask_NT, response_NT, 0) * base_T).sum(-1)]

    def teacher(self, *_: object) -> tuple[Ints, Bools]:
        """Raise UserError: a table has no teacher."""
        raise UserError("A reward table has no teacher; enumerate its responses instead.")


def reward_tree(reward_L: ArrayLike, vocabulary: int, length: int, end_token: int | None = None) -> TokenTree:
    """The tree of a RewardTable, one prompt. Raises UserError for a tree that is too large or a bad table."""
    check_size(vocabulary, length)
    return TokenTree(RewardTable(reward_L, vocabulary, length, end_token), [[0]])


def random_tree(vocabulary: int, length: int, seed: int = 0, end_token: int | None = None) -> TokenTree:
    """Return a token tree with independent rewards 0 or 1, a third of them 1.

    Args:
        vocabulary: number of tokens V.
        length: largest number of tokens T in a response; V^T responses are enumerated.
        seed: seeds the rewards.
        end_token: the token that ends a response early, if any.
    """
    check_size(vocabulary, length)
    if end_token is not None and not 0 <= end_token < vocabulary:
        raise UserError(f"end token {end_token} is not one of the tokens 0 to {vocabulary - 1}.")
    rng = np.random.default_rng([seed, 1])
    reward_L = (rng.random(vocabulary**length) < 1 / 3).astype(np.float64)
    return reward_tree(reward_L, vocabulary, length, end_token)


def random_policies(tree: TokenTree, drift: float, seed: int = 0) -> tuple[Floats, Floats]:
    """Draw two policies on a tree: standard normal logits for mu, plus `drift` times others for pi.

    Args:
        tree: the token tree, with S prefixes and A tokens.
        drift: size of the step from mu's to pi's logits, at least 0.
        seed: seeds the logits.

    Returns:
        (mu_SA, pi_SA), probabilities [S, A] each.
    """
    if not 0 <= drift < np.inf:
        raise UserError(f"drift is the size of the logits' step from mu to pi, 0 or more; got {drift}.")
    rng = np.random.default_rng([seed, 2])
    logits_SA, step_SA = rng.standard_normal((2, tree.states, tree.actions))
    return softmax(logits_SA), softmax(logits_SA + drift * step_SA)


def softmax(logits_SA: ArrayLike) -> Floats:
    """The policy of a table of logits, over the last axis."""
    shifted = np.asarray(logits_SA, dtype=np.float64)
    power = np.exp(shifted - shifted.max(-1, keepdims=True))
    normalized: Floats = power / power.sum(-1, keepdims=True)
    return normalized


def check_size(vocabulary: int, length: int, prompts: int = 1) -> None:
    """Raise UserError with leaves, memory and limit if the tree is too large; allocates nothing."""
    if vocabulary < 2 or length < 1:
        raise UserError(f"vocabulary {vocabulary}, length {length}: a tree needs 2 tokens and length 1.")
    leaves = prompts * vocabulary**length
    if leaves * length > MOST_TOKENS or leaves * 2 > MOST_ENTRIES:
        raise UserError(
            f"vocabulary {vocabulary}, length {length} make {leaves:,} leaves, {leaves * length:,} tokens, "
            f"about {leaves * length * BYTES_PER_TOKEN / 2**30:.3g} GiB; the limit is {MOST_TOKENS:,} "
            "tokens. Take a smaller vocabulary or shorter responses."
        )


@dataclass(frozen=True)
class Leaves:
    """All responses of a tree, L of them, prompt by prompt in lexicographic order.

    state_LT, action_LT: prefix and token, 0 outside mask_LT. reward_L. prompt_L: number of the prompt.
    """

    state_LT: Ints
    action_LT: Ints
    mask_LT: Bools
    reward_L: Floats
    prompt_L: Ints

    def log(self, pi_SA: Floats) -> Floats:
        """log pi(token | prefix), 0 outside the mask, [L, T]."""
        return np.where(self.mask_LT, np.log(pi_SA)[self.state_LT, self.action_LT], 0.0)

    def probability(self, pi_SA: Floats) -> Floats:
        """Probability of a response under pi and a uniform prompt, [L]."""
        law_L: Floats = np.exp(self.log(pi_SA).sum(-1)) / (self.prompt_L[-1] + 1)
        return law_L


def enumerate_leaves(tree: TokenTree) -> Leaves:
    """List every response of every prompt once. Raises UserError if there are too many."""
    prompts = len(tree.prompt_NQ)
    check_size(tree.actions, tree.horizon, prompts)
    token_LT, mask_LT = every_response(tree.actions, tree.horizon, tree.end_token)
    place_A = np.zeros(tree.actions, dtype=np.int64)
    place_A[tree.going] = np.arange(tree.going.size)
    state_LT = np.zeros_like(token_LT)
    # Prefixes are numbered level by level: the children of n begin at n going + 1, as in a heap.
    for t in range(tree.horizon - 1):
        state_LT[:, t + 1] = state_LT[:, t] * tree.going.size + 1 + place_A[token_LT[:, t]]
    leaves = len(token_LT)
    prompt_L = np.repeat(np.arange(prompts), leaves)
    mask_LT = np.tile(mask_LT, (prompts, 1))
    state_LT = np.tile(state_LT, (prompts, 1)) + prompt_L[:, None] * tree.nodes
    action_LT = np.where(mask_LT, np.tile(token_LT, (prompts, 1)), 0)
    state_LT = np.where(mask_LT, state_LT, 0)
    last_L = mask_LT.sum(-1) - 1
    row_L = np.arange(len(last_L))
    reward_L = tree.reward_SA[state_LT[row_L, last_L], action_LT[row_L, last_L]]
    return Leaves(state_LT, action_LT, mask_LT, reward_L, prompt_L)


def check_policies(tree: TokenTree, **policies: ArrayLike) -> tuple[Floats, ...]:
    """Return the tables as float64 [S, A]. UserError for a wrong shape, bad row, or probability 0."""
    found = []
    for name, given in policies.items():
        law_SA = np.asarray(given, dtype=np.float64)
        if law_SA.shape != (tree.states, tree.actions):
            raise UserError(
                f"{name} has shape {law_SA.shape}, expected [S, A] = [{tree.states}, {tree.actions}]: one "
                "row of probabilities per prefix."
            )
        if not np.all(np.abs(law_SA.sum(-1) - 1.0) < 1e-6) or np.any(law_SA < 0):
            raise UserError(
                f"{name} has a row that is not a distribution; pass probabilities, say softmax(logits)."
            )
        if np.any(law_SA == 0):
            state, action = (int(i) for i in np.argwhere(law_SA == 0)[0])
            prompt, prefix = tree.prefix(state)
            raise UserError(
                f"{name} gives probability 0 to action {action} in state {state} (prompt {prompt}, response "
                f"so far {list(prefix)}): ratios and scores need both policies positive everywhere. "
                "Mix in a little of the uniform distribution."
            )
        found.append(law_SA)
    return tuple(found)


@dataclass(frozen=True)
class TreeFacts:
    """Exact numbers for a pair of policies; ESS values are the limits of ESS / N.

    value_pi, value_mu: J. gradient_norm: |dJ(pi)/dlogits|. KLs in nats. renyi2 = log E_mu w^2.
    """

    leaves: int
    prefixes: int
    value_pi: float
    value_mu: float
    gradient_norm: float
    kl_pi_mu: float
    kl_mu_pi: float
    chi2: float
    renyi2: float
    ess_sequence: float
    ess_perplexity: float
    ess_max: float
    ess_token: float
    ess_prefix_T: tuple[float, ...]


def tree_facts(tree: TokenTree, mu_SA: ArrayLike, pi_SA: ArrayLike) -> TreeFacts:
    """Return exact values, divergences and ESS limits of two policies, by dynamic programming.

    Args:
        tree: the token tree, with S prefixes and A tokens.
        mu_SA: the behavior policy, probabilities [S, A].
        pi_SA: the target policy, probabilities [S, A].
    """
    mu, pi = check_policies(tree, mu=mu_SA, pi=pi_SA)
    found = tree.divergence(pi, mu)
    going, ends = tree.going.size, 0 if tree.end_token is None else 1
    per_prompt = sum(ends * going**t for t in range(tree.horizon)) + going**tree.horizon
    return TreeFacts(
        leaves=len(tree.prompt_NQ) * per_prompt, prefixes=tree.states, value_pi=float(tree.value(pi)),
        value_mu=float(tree.value(mu)), gradient_norm=float(np.linalg.norm(tree.gradient(pi))),
        kl_pi_mu=float(found.kl_pi_mu), kl_mu_pi=float(found.kl_mu_pi), chi2=float(found.chi2),
        renyi2=float(np.log(found.second_moment)), ess_sequence=float(found.ess_kish),
        ess_perplexity=float(found.ess_perplexity), ess_max=float(found.ess_max),
        ess_token=float(found.mean_rho_token**2 / found.second_moment_token),
        ess_prefix_T=tuple(float(1.0 / moment) for moment in found.second_moment_prefix_T),
    )  # fmt: skip
