"""Claims about what weights say of themselves: ESS and its optimism, KL estimators, tails."""

import math
from itertools import pairwise

import numpy as np
from scipy import optimize, special

from analysis.lab import Evidence, Experiment, exact
from envs.finite_mdp import FiniteMDP
from testbed.diagnostics.tails import Estimated, Flat, hill, moment, pareto_k
from testbed.diagnostics.weight_sums import WeightSums, expected_share
from testbed.objectives import objective

EXPERIMENT = Experiment(
    "diagnostics",
    question="What do ESS, KL estimators and tail indices say of weights, and what can they not say?",
    source="papers of the diagnostics, with each claim",
)

SHARES = ("max", "kish", "perplexity")
"""In rising order."""


@EXPERIMENT.claim(
    source="Martino, Elvira & Louzada (2017); clamped at 2 as verl's rollout importance weights"
)
def ess_of_a_proportional_sample_raw_and_clamped() -> Evidence:
    """Weights 1/3, 1/3, 1/3, 3 have ESS shares 3/7 (Kish), 3^(-1/2) (perplexity), 1/3 (max weight); with the
    weights, not their logarithms, bounded by 2 they are 27/52, 9/(4 6^(2/3)) and 3/8.
    """
    import torch

    from testbed.diagnostics.ratios import ess_family

    log_w_N = np.log([1 / 3, 1 / 3, 1 / 3, 3.0])
    expected = {
        "raw": {"kish": 3 / 7, "perplexity": 3**-0.5, "max": 1 / 3},
        "clamped": {"kish": 27 / 52, "perplexity": 9 / (4 * 6 ** (2 / 3)), "max": 3 / 8},
    }
    rows = ess_family(torch.tensor(log_w_N)[:, None], torch.ones(4, 1, dtype=torch.bool))
    gaps = []
    for which, shares in expected.items():
        sums = WeightSums.of(log_w_N, upper=math.inf if which == "raw" else 2.0)
        for how, share in shares.items():
            for level in ("token", "prefix", "sequence"):
                gaps.append(abs(float(rows[f"rollout_corr/ess_{how}_{level}_{which}"]) - share))
            gaps.append(abs(float(sums.ess(how)) - share))
    return exact(
        gaps, 1e-6, "largest distance from a closed form; 2 is rounded to float32 in the batch's log"
    )


@EXPERIMENT.claim(source="Rényi entropies fall as their order rises")
def ess_order_in_every_sample() -> Evidence:
    """In every sample 1/N <= max-weight ESS <= Kish ESS <= perplexity ESS <= 1, as shares of N."""
    gaps = []
    for n, sums in _samples():
        rising = [np.full(sums.count.shape, 1 / n), *(sums.ess(how) for how in SHARES), np.ones(1)]
        gaps += [np.max(low - high) for low, high in pairwise(rising)]
    return exact(gaps, 1e-12, "largest excess over 4 sample sizes, 60 samples each")


@EXPERIMENT.claim(
    source="docs/theory/sampled-ess.md: min(w, c)/w falls in w, so the bounded shares are majorized by the "
    "raw ones"
)
def clamping_never_lowers_ess() -> Evidence:
    """Bounding the weights of a sample from above never lowers any of its ESS shares."""
    gaps = []
    raw = _samples()
    for upper in (0.1, 1.0, 2.0, 100.0):
        for (_, before), (_, after) in zip(raw, _samples(upper), strict=True):
            gaps += [np.max(before.ess(how) - after.ess(how)) for how in SHARES]
    return exact(gaps, 1e-12, "largest fall over 4 bounds, 4 sample sizes, 60 samples each")


@EXPERIMENT.claim(source="docs/theory/sampled-ess.md: kish and perplexity are jointly convex in sample means")
def sampled_ess_is_optimistic() -> Evidence:
    """The expected ESS share of N independent weights is 1 at N = 1, never rises with N and is never below
    its limit, for Kish, perplexity and max weight alike.
    """
    gaps, largest = [], 0.0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        mu_A = rng.dirichlet(np.ones(4))
        weight_A = rng.dirichlet(np.full(4, 0.5)) / mu_A
        limit = {
            "max": 1 / weight_A.max(),
            "kish": 1 / (mu_A @ weight_A**2),
            "perplexity": math.exp(-(mu_A * weight_A) @ np.log(weight_A)),
        }
        for how in SHARES:
            shares = [expected_share(weight_A, mu_A, n, how) for n in (1, 2, 4, 8, 16, 32)]
            gaps += [abs(shares[0] - 1), *np.diff(shares), limit[how] - shares[-1]]
            largest = max(largest, shares[-1] / limit[how])
    return exact(gaps, 1e-9, f"largest rise or fall below; at N = 32 overstated up to {largest:.3g} times")


@EXPERIMENT.claim(source="this project; token-level ESS as logged by verl, PipelineRL and miles")
def token_ess_does_not_see_length() -> Evidence:
    """With independent tokens of distance chi2 the token ESS tends to 1/(1 + chi2) at every length T, the
    sequence ESS to its T-th power: at T = 200 the one is above 0.9, the other below 1/256.
    """
    mu_A = np.array([0.4, 0.3, 0.2, 0.1])
    pi_A = mu_A * np.exp(0.4 * np.array([1.0, -1.0, 0.5, -0.5]))
    pi_A /= pi_A.sum()
    square = float(pi_A @ (pi_A / mu_A))
    gaps = []
    for horizon in (1, 20, 200):
        world = FiniteMDP(
            transition_SAS=np.ones((1, 4, 1)), reward_SA=np.zeros((1, 4)), start_S=np.ones(1), horizon=horizon
        )
        found = world.divergence(pi_A[None], mu_A[None])
        gaps += [abs(float(found.second_moment_token) / square - 1)]
        gaps += [abs(float(found.ess_kish) * square**horizon - 1)]
    token, sequence = 1 / square, float(found.ess_kish)
    gaps += [0.9 - token, sequence - 1 / 256]
    return exact(gaps, 1e-10, f"largest distance; at T = 200 token {token:.3f}, sequence {sequence:.2g}")


@EXPERIMENT.claim(
    source="van Erven & Harremoës (2014), Rényi divergence and Kullback-Leibler divergence, theorem 3"
)
def kl_below_renyi_below_largest_log_ratio() -> Evidence:
    """KL(pi, mu) <= log(1 + chi2) <= largest log ratio, for the episode laws of all policies; all three are
    equal where pi takes one action and mu all with equal chance.
    """
    from analysis.experiments.weights.weights import PAIRS, random_divergences, random_world

    found = random_divergences(horizon=8)
    rising = np.stack([found.kl_pi_mu, np.log1p(found.chi2), found.max_log_rho])
    one_SA = np.eye(3)[np.arange(6) % 3]
    even = random_world(horizon=8).divergence(one_SA[None], np.full((1, 6, 3), 1 / 3))
    level = np.concatenate([even.kl_pi_mu, np.log1p(even.chi2), even.max_log_rho]) - 8 * np.log(3)
    return exact(
        [*(rising[:-1] - rising[1:]).ravel(), *np.abs(level)],
        1e-9,
        f"largest excess over {PAIRS} random policy pairs, 8 steps",
    )


@EXPERIMENT.claim(source="Schulman (2020), Approximating KL Divergence")
def kl_estimators_as_values() -> Evidence:
    """On samples of mu, k1 and k3 have the expectation KL(mu, pi), k2 has E (log rho)^2 / 2 instead; weighted
    by rho the same holds for KL(pi, mu); k2 and k3 are never negative.
    """
    import torch

    from testbed.diagnostics.ratios import kl_estimates

    gaps: list[float] = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        count_A = 1 + rng.multinomial(40, rng.dirichlet(np.ones(5)))
        mu_A, pi_A = count_A / count_A.sum(), rng.dirichlet(np.ones(5))
        log_A = np.log(pi_A / mu_A)
        log_rho_B1 = torch.tensor(np.repeat(log_A, count_A))[:, None]
        rows = kl_estimates(log_rho_B1, torch.ones_like(log_rho_B1, dtype=torch.bool))
        for direction, weight_A, kl in (("mu_pi", mu_A, -mu_A @ log_A), ("pi_mu", pi_A, pi_A @ log_A)):
            expected = {"k1": kl, "k2": weight_A @ log_A**2 / 2, "k3": kl}
            found = {name: float(rows[f"rollout_corr/kl_{direction}_{name}"]) for name in expected}
            gaps += [abs(found[name] - value) for name, value in expected.items()]
        for value in log_rho_B1[:, 0]:
            single = kl_estimates(value[None, None], torch.ones(1, 1, dtype=torch.bool))
            gaps += [-float(single[f"rollout_corr/kl_mu_pi_{name}"]) for name in ("k2", "k3")]
    return exact(gaps, 1e-12, "largest distance or negative value over 20 random pairs of 5 tokens")


@EXPERIMENT.claim(
    source="Tang & Munos (2025), On a few pitfalls in KL divergence gradient estimation, arXiv:2506.09477"
)
def kl_estimators_as_losses() -> Evidence:
    """Differentiated on samples of pi, k1 toward ref has expected gradient 0, k2 that of KL(pi, ref), and k3
    that of the other direction, KL(ref, pi).
    """
    import torch

    from testbed.data.batch import Batch

    gaps, apart = [], math.inf
    for seed in range(20):
        rng = np.random.default_rng(seed)
        theta_A, ref_A = torch.tensor(rng.normal(size=5)), rng.dirichlet(np.ones(5))
        pi_A = torch.softmax(theta_A, 0).numpy()
        log_A = np.log(pi_A / ref_A)
        expected = {
            "k1": np.zeros(5),
            "k2": pi_A * (log_A - pi_A @ log_A),
            "k3": pi_A - ref_A,
        }
        one_A1 = torch.ones(5, 1, dtype=torch.float64)
        batch = Batch(
            one_A1 * -1,
            one_A1,
            one_A1.bool(),
            one_A1[:, 0],
            torch.zeros(5, dtype=torch.int64),
            logp_ref_BT=torch.tensor(ref_A).log()[:, None],
        )
        for name, gradient_A in expected.items():
            leaf_A = theta_A.clone().requires_grad_()
            logp_A1 = torch.log_softmax(leaf_A, 0)[:, None]
            loss_A = objective["kl_penalty"].bind(estimator=name)(logp_A1, batch)[:, 0]
            (found_A,) = torch.autograd.grad((torch.tensor(pi_A) * loss_A).sum(), leaf_A)
            gaps.append(float(np.abs(found_A.numpy() - gradient_A).max()))
        apart = min(apart, float(np.abs(expected["k2"] - expected["k3"]).max()))
    return exact(gaps, 1e-12, f"largest distance over 20 pairs; k2 and k3 differ by {apart:.2g} or more")


@EXPERIMENT.claim(
    "k3-varies-more-than-k1-beyond-a-shift-of-1.12",
    source="Schulman (2020), Approximating KL Divergence, where k3 is the low-variance one",
    kind="identity",
    statement=(
        "Between unit Gaussians d apart k1 has variance d^2 and k3 e^(d^2) - 1 - d^2, so k3 is better "
        "only for d < 1.1209, that is KL < 0.628; the bias of k2 is d^4/8."
    ),
)
def gaussian_variances() -> Evidence:
    """Return distances of quadrature from the closed forms, and of the crossing from 1.1209."""
    import torch

    from testbed.objectives.terms.kl_estimators import VALUES

    node_G, weight_G = np.polynomial.hermite_e.hermegauss(120)
    weight_G = weight_G / weight_G.sum()

    def moments(d: float) -> tuple[float, float, float]:
        log_G = torch.from_numpy(d * d / 2 - d * node_G)  # log of pi/other at x ~ pi
        k_EG = [VALUES["reverse", name](log_G).numpy() for name in ("k1", "k2", "k3")]
        variance = [float(weight_G @ k_G**2 - (weight_G @ k_G) ** 2) for k_G in k_EG]
        return variance[0], variance[2], float(weight_G @ k_EG[1] - d * d / 2)

    gaps = []
    for d in (0.1, 0.5, 1.0, 1.5, 2.0):
        first, third, bias = moments(d)
        gaps += [first / d**2 - 1, third / (math.expm1(d * d) - d * d) - 1, bias / (d**4 / 8) - 1]
    crossing = optimize.brentq(lambda d: moments(d)[1] - moments(d)[0], 0.5, 2.0, xtol=1e-12)
    gaps.append(max(0.0, abs(crossing - 1.1209) - 5e-5))  # four decimals are stated
    return exact(np.abs(gaps), 1e-8, f"largest relative distance; the variances cross at d = {crossing:.6f}")


@EXPERIMENT.claim(source="own; arviz reports an infinite k for constant weights, arviz-stats an error")
def pareto_k_on_policy_is_no_number() -> Evidence:
    """Equal weights, up to rounding of their logarithms, have a flat tail at every N, and weights of three
    values never get a shape, wherever the mass of the largest lies; quantiles of Pareto laws of index 1/4,
    1/2 and 1 get theirs within 0.1.
    """
    gaps = []
    for n in (1, 2, 5, 6, 30, 300, 3000):
        rounding_N = np.random.default_rng(n).normal(0, 1e-8, n)
        gaps += [float(not isinstance(pareto_k(log_w), Flat)) for log_w in (np.zeros(n), rounding_N)]
    for heavy in (3, 5, 20, 50, 90, 95, 120, 300):
        log_w_N = np.log(np.repeat([4.0, 1.0, 0.5], [heavy, 500, 500 - heavy]))
        gaps.append(float(isinstance(pareto_k(log_w_N), Estimated)))
    for index in (0.25, 0.5, 1.0):
        found = pareto_k(-index * np.log1p(-(np.arange(1, 5001) - 0.5) / 5000))
        gaps.append(float(not (isinstance(found, Estimated) and abs(found.k - index) < 0.1)))
    return exact(gaps, 0.0, "1 if any outcome is another one")


@EXPERIMENT.claim(source="Hill (1975); Dekkers, Einmahl & de Haan (1989)", kind="enumerated")
def hill_finds_a_tail_in_every_law() -> Evidence:
    """On the mean order statistics of a Pareto law's logarithms Hill is the index exactly; on 5000 exact
    quantiles and the largest 250 it is positive for the uniform, exponential and log-normal laws too; the
    moment estimator puts the uniform at -1.
    """
    level_N = (np.arange(1, 5001) - 0.5) / 5000
    laws = {
        "pareto": -0.5 * np.log1p(-level_N),
        "exponential": np.log(-np.log1p(-level_N)),
        "lognormal": special.ndtri(level_N),
        "uniform": np.log(level_N),
    }
    hills = {name: hill(log_w_N, 250) for name, log_w_N in laws.items()}
    moments = {name: moment(log_w_N, 250) for name, log_w_N in laws.items()}
    # E log w_(i) = index sum_(j >= i) 1/j (Renyi), largest first: exceedances average to the index.
    mean_N = 0.5 * (1.0 / np.arange(5000, 0, -1)).cumsum()
    gaps = [
        *(abs(hill(mean_N, k) - 0.5) - 1e-12 for k in (1, 2, 10, 250)),
        abs(hills["pareto"] - 0.5) - 0.01,
        abs(moments["pareto"] - 0.5) - 0.02,
        abs(moments["uniform"] + 1.0) - 0.02,
        abs(moments["exponential"]) - 0.1,
        *(0.02 - hills[name] for name in ("exponential", "lognormal", "uniform")),
    ]
    note = ", ".join(f"{name}: Hill {hills[name]:.3f}, moment {moments[name]:.3f}" for name in laws)
    return exact(gaps, 0.0, f"largest excess over the stated distances; {note}")


def _samples(upper: float = math.inf) -> list[tuple[int, WeightSums]]:
    """Return (N, sums of 60 samples of N weights), from nearly equal weights to one that dominates."""
    rng = np.random.default_rng(12)
    scale_R1 = np.linspace(0.0, 8.0, 60)[:, None]
    return [(n, WeightSums.of(scale_R1 * rng.normal(size=(60, n)), upper=upper)) for n in (1, 2, 17, 400)]
