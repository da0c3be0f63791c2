"""A claim about how the bias of token ratios grows with length and drift, against the bound that is quoted.

Laws of independent tokens are enumerated over counts of letters, so that length is no obstacle; scores are
then in the logits that all positions share. Short trees are enumerated response by response.
"""

import math

import numpy as np
from scipy import special

from analysis.lab import Evidence, Experiment, exact
from testbed.exact.tree import enumerate_leaves, random_policies, random_tree, reward_tree

EXPERIMENT = Experiment(
    "bounds",
    question="How does the bias of token ratios grow with length and drift?",
    source="verl's documentation: token level O(T^2 Delta_max), sequence level unbiased",
)

TREES = 4
"""Random trees per depth behind the bound."""


@EXPERIMENT.claim(
    source="verl's documentation: token level O(T^2 Delta_max), sequence level unbiased; exact enumeration"
)
def token_ratio_bias_grows_slower_than_length_squared() -> Evidence:
    """With terminal rewards in [0, 1] unclipped sequence ratios have no bias, and token ratios at most (1 +
    sqrt m) D sum_(j<T) sqrt j, D the largest total variation of a token and m the largest E_pi[rho |S|^2]: at
    bounded m order T^1.5 D, below the published T^2 D. A letter that pi hardly uses and mu uses D more
    attains T^1.5, a coin biased by D only T, at the worst reward; for small D both are linear in it.
    """
    gaps = [*_on_trees(), *_counts_agree_with_tree()]
    for bias, exponent in ((even_bias, 1.0), (rare_bias, 1.5)):
        found = [bias(length, 1e-6) for length in (512, 1024)]
        gaps += [_short(abs(math.log2(found[1] / found[0]) - exponent), 0.01)]
        gaps += [_short(abs(bias(64, 2e-7) / bias(64, 1e-7) / 2 - 1), 1e-4)]
        for length in (2, 8, 64, 512):
            for step in (1e-6, 1e-2):
                gaps.append(max(0.0, bias(length, step) / count_bound(length, step, bias) - 1))
    return exact(gaps, 1e-9, "largest excess over the bound, bias of sequence ratios, or miss of an exponent")


def _short(miss: float, allowed: float) -> float:
    return max(0.0, miss - allowed)


def _on_trees() -> list[float]:
    """Return the sequence ratio's bias, the token ratio's relative excess, and its miss of linearity."""
    from testbed.exact.gradient_report import Bench, gradient_report

    gaps = []
    for length in (2, 3, 4):
        for seed in range(TREES):
            tree = random_tree(3, length, seed)
            norms = []
            for drift in (2.0, 0.5, 2e-4, 1e-4):
                bench = Bench(tree, *random_policies(tree, drift, seed))
                token_SA = gradient_report("ratio:token", bench).bias_SA
                norms.append(float(np.linalg.norm(token_SA)))
                gaps.append(max(0.0, norms[-1] / bound(bench.mu_SA, bench.pi_SA, length) - 1))
                gaps.append(float(np.linalg.norm(gradient_report("ratio:sequence", bench).bias_SA)))
            gaps.append(_short(abs(norms[2] / norms[3] / 2 - 1), 1e-3))
    return gaps


def bound(mu_SA: np.ndarray, pi_SA: np.ndarray, length: int) -> float:
    """(1 + sqrt m) D sum_{j<T} sqrt j for rewards in [0, 1]; scores in the logits, S = onehot - pi.

    Replacing mu by pi one token at a time, the change at place s has mass 2 D and meets R - 1/2 times the sum
    of the scores before it, whose mean square is at most s - 1, and of rho S behind it, at most (T - s) m.
    """
    square_SA = 1 - 2 * pi_SA + (pi_SA**2).sum(-1, keepdims=True)
    m = float((pi_SA**2 / mu_SA * square_SA).sum(-1).max())
    apart = float(np.abs(mu_SA - pi_SA).sum(-1).max() / 2)
    return (1 + math.sqrt(m)) * apart * float(np.sqrt(np.arange(1, length)).sum())


def even_laws(step: float) -> tuple[np.ndarray, np.ndarray]:
    """(mu, pi) of a token: pi a fair coin, mu(1) = 1/2 + step."""
    return np.array([0.5 - step, 0.5 + step]), np.array([0.5, 0.5])


def rare_laws(step: float) -> tuple[np.ndarray, np.ndarray]:
    """(mu, pi) of a token: a coin and a third letter, 1e-6 step likely under pi and `step` more under mu."""
    rare = 1e-6 * step
    pi_A = np.array([(1 - rare) / 2, (1 - rare) / 2, rare])
    return pi_A + step * np.array([-0.5, -0.5, 1.0]), pi_A


def _even_terms(length: int, step: float) -> np.ndarray:
    """mu(y) sum rho_t S_t - pi(y) sum S_t along logit 1, summed over the responses with k ones, [T + 1]."""
    mu_A, pi_A = even_laws(step)
    k = np.arange(length + 1)
    choose = special.gammaln(length + 1) - special.gammaln(k + 1) - special.gammaln(length - k + 1)
    mu_K, pi_K = (np.exp(choose + k * np.log(p[1]) + (length - k) * np.log(p[0])) for p in (mu_A, pi_A))
    rho_A = pi_A / mu_A
    return np.asarray(mu_K * (k * rho_A[1] - (length - k) * rho_A[0]) / 2 - pi_K * (k - length / 2))


def even_bias(length: int, step: float) -> float:
    """|E g - grad J| of token ratios under `even_laws` and the reward in [0, 1] that makes it largest."""
    return float(math.sqrt(2) * np.maximum(_even_terms(length, step), 0).sum())


def rare_bias(length: int, step: float) -> float:
    """The bias along (-1, 1, 0) under `rare_laws`; reward 1 for one rare letter and more ones than zeros."""
    mu_A, pi_A = rare_laws(step)
    k = np.arange(length)
    choose_K = special.gammaln(length) - special.gammaln(k + 1) - special.gammaln(length - k)
    fair_K = np.exp(choose_K - (length - 1) * math.log(2))
    lead = float(fair_K @ np.maximum(2 * k - length + 1, 0)) / math.sqrt(2)
    under_mu = mu_A[2] * (2 * mu_A[0]) ** (length - 1) * pi_A[0] / mu_A[0]
    return float(length * lead * (under_mu - pi_A[2] * (2 * pi_A[0]) ** (length - 1)))


def count_bound(length: int, step: float, bias: object) -> float:
    """`bound` for the laws of `even_bias` or `rare_bias`."""
    mu_A, pi_A = (even_laws if bias is even_bias else rare_laws)(step)
    return bound(mu_A[None], pi_A[None], length)


def _counts_agree_with_tree() -> list[float]:
    """Return the distances of both count formulas from enumerated trees, prefixes added up, at T = 4."""
    from testbed.exact.gradient_report import Bench, gradient_report

    length, step, gaps = 4, 0.1, []
    for laws, expected in ((even_laws, even_bias(length, step)), (rare_laws, rare_bias(length, step))):
        mu_A, pi_A = laws(step)
        letters = len(mu_A)
        token_LT = enumerate_leaves(reward_tree(np.zeros(letters**length), letters, length)).action_LT
        ones_L, zeros_L = ((token_LT == letter).sum(-1) for letter in (1, 0))
        good_L = ones_L > zeros_L
        if letters == 3:
            good_L &= (token_LT == 2).sum(-1) == 1
        else:
            good_L = _even_terms(length, step)[ones_L] > 0
        tree = reward_tree(good_L.astype(float), letters, length)
        bench = Bench(tree, *(np.tile(law, (tree.states, 1)) for law in (mu_A, pi_A)))
        shared_A = gradient_report("ratio:token", bench).bias_SA.sum(0)
        gaps.append(abs(float(shared_A[1] - shared_A[0]) / math.sqrt(2) - expected))
    return gaps
