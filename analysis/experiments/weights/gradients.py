"""Claims about policy gradients from off-policy data, decided by enumerating every response of small trees.

Gradients are in the logits of every prefix. "Random trees": three tokens, three of them, rewards 0 and 1,
standard normal logits for mu and a step of half that size to pi.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.lab import Evidence, Experiment, Part, exact
from testbed.exact.tree import random_policies, random_tree, reward_tree, softmax

if TYPE_CHECKING:
    from testbed.exact.gradient_report import Bench

EXPERIMENT = Experiment(
    "gradients",
    question="Which ratios, signals, baselines and clips leave a policy gradient from stale data unbiased?",
    source="exact enumeration; sources with each claim",
    systems={
        "MinPRO (A Step Back)": Part(
            "that the token ratio is biased, and that the minimum over prefixes is so too; no training",
            claims=("gradient-only-three-ratio-signal-pairs-unbiased", "gradient-of-ratios-two-token-tree"),
        ),
        "VCPO (Stable Asynchrony)": Part(
            "the off-policy baseline that its plug-in estimates, exactly; no training",
            claims=("optimal-baseline-excess-variance",),
        ),
        "CTPO (cumulative token)": Part(
            "bias and variance of the prefix ratio; neither the clip by position nor training",
            claims=("gradient-only-three-ratio-signal-pairs-unbiased", "prefix-ratio-variance"),
        ),
        "max@k (Best of N Worlds)": Part(
            "that the gradient is unbiased off-policy; no training", claims=("max-at-k-unbiased",)
        ),
    },
)

TREES = 8
"""Random trees behind a claim about all trees."""
TOLERANCE = 1e-11
CLEARLY = 0.01
"""What "biased" means: more than 1% of |grad J|. A relation that must not hold counts as CLEARLY - bias."""
CLIPPED = ("ppo_clip", "tis", "importance_reinforce", "gspo@pipelinerl", "cispo")


def _random_bench(seed: int, drift: float = 0.5) -> Bench:
    from testbed.exact.gradient_report import Bench

    tree = random_tree(3, 3, seed)
    return Bench(tree, *random_policies(tree, drift, seed))


def _two_token_bench() -> Bench:
    """Return E3: pi uniform, mu(1) = 1/4 first and 3/4 behind token 1, reward only for (1, 1)."""
    from testbed.exact.gradient_report import Bench

    mu_SA = np.array([[0.75, 0.25], [0.25, 0.75], [0.25, 0.75]])
    return Bench(reward_tree([0.0, 0.0, 0.0, 1.0], 2, 2), mu_SA, np.full((3, 2), 0.5))


@EXPERIMENT.claim(
    source="exact enumeration; MinPRO arXiv:2601.22718 for the minimum, GSPO arXiv:2507.18071 for W^(1/T)"
)
def gradient_of_ratios_two_token_tree() -> Evidence:
    """On the two-token tree with gradient (1/8, 1/8) the mean gradients with reward R are (3/32, 3/32)
    without ratio, (3/16, 1/16) token, (3/16, 1/8) prefix and min-prefix, (1/8, 1/16) suffix, (1/8, 1/8)
    sequence and (sqrt(3)/16, sqrt(3)/16) geometric.
    """
    from testbed.exact.gradient_report import gradient_report

    expected = {
        "none": (3 / 32, 3 / 32),
        "token": (3 / 16, 1 / 16),
        "prefix": (3 / 16, 1 / 8),
        "min_prefix": (3 / 16, 1 / 8),
        "suffix": (1 / 8, 1 / 16),
        "sequence": (1 / 8, 1 / 8),
        "geometric": (math.sqrt(3) / 16, math.sqrt(3) / 16),
    }
    bench = _two_token_bench()
    gaps = [np.abs(bench.target_SA[[0, 2], 1] - 1 / 8)]
    for level, pair in expected.items():
        mean_SA = gradient_report(f"ratio:{level}", bench).mean_SA
        gaps.append(np.abs(mean_SA[[0, 2], 1] - np.array(pair)))
    return exact(np.concatenate(gaps), 1e-12, "largest distance of a coordinate from its fraction")


@EXPERIMENT.claim(
    source="exact enumeration; corrects the reading of the prefix ratio in CTPO and MinPRO arXiv:2601.22718"
)
def gradient_only_three_ratio_signal_pairs_unbiased() -> Evidence:
    """Of the ratios none, token, prefix, suffix, sequence, min-prefix and geometric with signal R or A^pi
    only sequence with either and prefix with A^pi have mean grad J; a prefix ratio with a sampled terminal
    reward is biased.
    """
    from testbed.exact.gradient_report import gradient_report

    free = {("sequence", "R"), ("sequence", "A"), ("prefix", "A")}
    gaps = []
    for seed in range(TREES):
        bench = _random_bench(seed)
        for level in ("none", "token", "prefix", "suffix", "sequence", "min_prefix", "geometric"):
            for signal in ("R", "A"):
                bias = gradient_report(f"ratio:{level}", bench, signal=signal).relative_bias
                gaps.append(bias if (level, signal) in free else CLEARLY - bias)
    return exact(
        gaps, TOLERANCE, f"relative bias of the unbiased, or 1% less that of the biased, {TREES} trees"
    )


@EXPERIMENT.claim(source="exact enumeration")
def gradient_bias_is_state_and_suffix() -> Evidence:
    """With reward R a token ratio leaves two errors, prefixes from d_mu and continuations from Q^mu, a prefix
    ratio only the second and a suffix ratio only the first; none of the three has another.
    """
    from testbed.exact.gradient_report import gradient_report

    leaves = {"token": ("state", "suffix"), "prefix": ("suffix",), "suffix": ("state",), "sequence": ()}
    gaps = []
    for seed in range(TREES):
        bench = _random_bench(seed)
        norm = np.linalg.norm(bench.target_SA)
        for level, left in leaves.items():
            found = gradient_report(f"ratio:{level}", bench)
            for name, part_SA in found.split.items():
                size = float(np.linalg.norm(part_SA) / norm)
                gaps.append(CLEARLY - size if name in left else size)
    return exact(
        gaps, TOLERANCE, f"relative size of absent parts, or 1% less that of present ones, {TREES} trees"
    )


@EXPERIMENT.claim(source="exact enumeration")
def baseline_free_only_under_plain_ratios() -> Evidence:
    """A constant baseline leaves the mean gradient as it is under unclipped token, prefix, suffix and
    sequence ratios; under clipped, truncated and geometric ones it moves the mean by -b E[w S].
    """
    from testbed.exact.gradient_report import gradient_report

    gaps = []
    for seed in range(TREES):
        bench = _random_bench(seed)
        norm = np.linalg.norm(bench.target_SA)
        for name in ("ratio:token", "ratio:prefix", "ratio:suffix", "ratio:sequence", *CLIPPED):
            found = gradient_report(name, bench, signal="R-b", baseline=0.5, **_tight(name))
            plain = gradient_report(name, bench, signal="R", **_tight(name))
            shift = float(np.linalg.norm(found.mean_SA - plain.mean_SA) / norm)
            free = name.startswith("ratio:")
            gaps += [shift if free else CLEARLY - shift, float(found.baseline_is_free != free)]
    return exact(gaps, TOLERANCE, f"relative shift by b = 1/2, or 1% less it, {TREES} trees")


def _tight(name: str) -> dict[str, Any]:
    return {"importance_reinforce": {"cap": 1.2}, "tis": {"cap": 1.2}}.get(name, {})


@EXPERIMENT.claim(
    source="Greensmith, Bartlett & Baxter (2004), off-policy form; VCPO's plug-in baseline estimates it"
)
def optimal_baseline_excess_variance() -> Evidence:
    """b* = E_mu[W^2 |S|^2 R] / E_mu[W^2 |S|^2] has least trace variance, and any b costs exactly (b - b*)^2
    E_mu[W^2 |S|^2] more; per coordinate with S_j^2.
    """
    from testbed.exact.gradient_report import gradient_report, optimal_baselines

    gaps: list[float] = []
    for seed in range(TREES):
        bench = _random_bench(seed)
        found = optimal_baselines(bench, "ratio:sequence")
        score_LX, ratio_L, law_L = _scores(bench)
        square_L = law_L * ratio_L**2 * (score_LX**2).sum(-1)
        reward_L = bench.leaves.reward_L
        gaps.append(abs(found.scalar - square_L @ reward_L / square_L.sum()))
        each_X = law_L * ratio_L**2 @ score_LX**2
        best_X = (law_L * ratio_L**2 * reward_L) @ score_LX**2 / each_X
        gaps.append(float(np.abs(found.coordinate_SA.ravel() - best_X).max()))
        least = gradient_report("ratio:sequence", bench, signal="R-b", baseline=found.scalar).variance
        for b in (-0.5, 0.0, 0.3, 1.0):
            there = gradient_report("ratio:sequence", bench, signal="R-b", baseline=b).variance
            gaps.append(abs(there - least - (b - found.scalar) ** 2 * square_L.sum()))
    return exact(gaps, 1e-10, f"largest distance from sums over leaves written out, {TREES} trees")


def _scores(bench: Bench) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return dense sequence scores [L, S A], W and mu of every response, from the tables alone."""
    leaves, pi_SA, mu_SA = bench.leaves, bench.pi_SA, bench.mu_SA
    score_LSA = np.zeros((len(leaves.reward_L), *pi_SA.shape))
    ratio_L, law_L = np.ones((2, len(score_LSA)))
    for number, (states, actions) in enumerate(zip(leaves.state_LT, leaves.action_LT, strict=True)):
        for s, a in zip(states, actions, strict=True):
            score_LSA[number, s] -= pi_SA[s]
            score_LSA[number, s, a] += 1.0
            ratio_L[number] *= pi_SA[s, a] / mu_SA[s, a]
            law_L[number] *= mu_SA[s, a]
    return score_LSA.reshape(len(score_LSA), -1), ratio_L, law_L


@EXPERIMENT.claim(
    source="exact enumeration; Dr. GRPO arXiv:2503.20783 and RLOO arXiv:2402.14740 differ by this factor"
)
def group_mean_scales_gradient() -> Evidence:
    """With sequence ratios, a baseline that is the mean of all G rewards gives (1 - 1/G) grad J, on- and
    off-policy; the mean of the others gives grad J; dividing by the group's deviation is biased.
    """
    from testbed.exact.gradient_report import Bench
    from testbed.exact.group import group_report

    gaps = []
    for seed, drift in ((0, 0.5), (1, 0.5), (2, 0.0)):
        tree = random_tree(2, 3, seed)
        bench = Bench(tree, *random_policies(tree, drift, seed))
        norm = np.linalg.norm(bench.target_SA)
        for size in (2, 3, 4):
            means = {
                name: group_report("ratio:sequence", bench, size=size, advantage=name)
                for name in ("group_mean", "leave_one_out", "group_std")
            }
            shrunk_SA = means["group_mean"].mean_SA - (1 - 1 / size) * bench.target_SA
            gaps += [float(np.linalg.norm(shrunk_SA) / norm), means["leave_one_out"].relative_bias]
            gaps.append(CLEARLY - means["group_std"].relative_bias)
    return exact(gaps, TOLERANCE, "relative distance, or 1% less the bias of the standard deviation, 3 trees")


@EXPERIMENT.claim(source="exact enumeration; GRPO arXiv:2402.03300, Section 4.1.2")
def group_std_scales_bernoulli_gradient() -> Evidence:
    """For one answer of success probability p, standardizing by the group's (population) deviation multiplies
    the gradient by E[sqrt(K (N - K))] / (N p (1 - p)) with K ~ Bin(N, p); at N = 8: 2.473 for p = .05 and
    1.856 for p = .5.
    """
    from testbed.exact.gradient_report import Bench
    from testbed.exact.group import group_report

    gaps = []
    for p, printed in ((0.05, 2.473), (0.5, 1.856)):
        law_SA = np.array([[1 - p, p]])
        bench = Bench(reward_tree([0.0, 1.0], 2, 1), law_SA, law_SA)
        for size in (2, 4, 8):
            settings = {"std": "population", "eps": 1e-14}
            found = group_report(
                "reinforce", bench, size=size, advantage="group_std", advantage_hyper=settings
            )
            factor = float(found.mean_SA[0, 1] / bench.target_SA[0, 1])
            law = [math.comb(size, k) * p**k * (1 - p) ** (size - k) for k in range(size + 1)]
            root = sum(q * math.sqrt(k * (size - k)) for k, q in enumerate(law))
            gaps.append(abs(factor - root / (size * p * (1 - p))))
            if size == 8:
                gaps.append(max(0.0, abs(factor - printed) - 5e-4))
    return exact(gaps, 1e-10, "largest distance of a factor; printed values to their last digit")


@EXPERIMENT.claim(source="exact enumeration; the ratio is GSPO's, arXiv:2507.18071")
def geometric_ratio_tilts_the_law() -> Evidence:
    """E_mu[W^(1/T) f] = Z E_q[f] with q proportional to mu^(1-1/T) pi^(1/T) and Z = exp((1/T - 1) D_(1/T)(pi,
    mu)) < 1, D the Renyi divergence: GSPO's ratio shrinks and tilts.
    """
    from testbed.exact.gradient_report import gradient_report
    from testbed.losses.ratios import log_geometric

    gaps = []
    for seed in range(TREES):
        bench = _random_bench(seed)
        score_LX, ratio_L, law_L = _scores(bench)
        alpha = 1 / bench.tree.horizon
        renyi = math.log((law_L * ratio_L) ** alpha @ law_L ** (1 - alpha)) / (alpha - 1)
        z = math.exp((alpha - 1) * renyi)
        q_L = law_L ** (1 - alpha) * (law_L * ratio_L) ** alpha / z
        rows = np.arange(len(law_L))[:, None]
        logp, batch = bench.batch(rows, bench.advantage("R", 0.0)[rows])
        ratio = log_geometric(logp, batch).exp().numpy()[:, 0, 0]
        mean_SA = gradient_report("ratio:geometric", bench).mean_SA
        expected_X = z * (q_L * bench.leaves.reward_L) @ score_LX
        gaps += [abs(law_L @ ratio - z), float(np.abs(mean_SA.ravel() - expected_X).max()), z - 1.0]
    return exact(gaps, TOLERANCE, f"largest distance from sums over leaves written out, {TREES} trees")


@EXPERIMENT.claim(source="exact enumeration; corrects 'unbiased with lower variance' in CTPO's abstract")
def prefix_ratio_variance() -> Evidence:
    """The prefix ratio varies no more than the sequence ratio, and with signal A^pi neither does its gradient
    in prefix logits; with a sampled terminal reward its gradient can have the larger trace variance.
    """
    from testbed.exact.gradient_report import gradient_report
    from testbed.losses.ratios import log_prefix

    gaps, larger = [], 0
    trees = 40
    for seed in range(trees):
        bench = _random_bench(seed, drift=1.0)
        found = {
            (level, signal): gradient_report(f"ratio:{level}", bench, signal=signal).variance
            for level in ("prefix", "sequence")
            for signal in ("R", "A")
        }
        gaps.append(found["prefix", "A"] / found["sequence", "A"] - 1.0)
        larger += found["prefix", "R"] > 1.001 * found["sequence", "R"]
        rows = np.arange(len(bench.law_L))[:, None]
        prefix_LT = log_prefix(*bench.batch(rows, bench.advantage("R", 0.0)[rows])).exp().numpy()[:, 0]
        moment_T = bench.law_L @ prefix_LT**2
        gaps.append(float((moment_T[:-1] / moment_T[1:]).max()) - 1.0)
    gaps.append(0.0 if larger else 1.0)
    note = f"largest relative excess over {trees} trees; {larger} of them have more variance with reward R"
    return exact(gaps, TOLERANCE, note)


@EXPERIMENT.claim(source="Best of N Worlds (2025), arXiv:2510.23393")
def max_at_k_unbiased() -> Evidence:
    """The off-policy max@k weights have mean grad E_pi[max of k rewards] for every n >= k; the form to first
    order in W - 1 errs by the square of the distance between the policies.
    """
    from testbed.exact.gradient_report import Bench
    from testbed.exact.group import group_report

    tree = reward_tree([0.1, 0.9, 0.4, 0.6], 4, 1)
    start_A, step_A = np.array([0.2, -0.4, 0.1, 0.3]), np.array([0.5, -0.8, 0.9, -0.3])
    errors, gaps = {}, []
    for scale in (1.0, 1e-2, 1e-3):
        bench = Bench(tree, softmax(start_A)[None], softmax(start_A + scale * step_A)[None])
        for size, k in ((2, 2), (3, 2), (4, 3)):
            target_A = _max_gradient(bench.pi_SA[0], bench.leaves.reward_L, k)
            whole = group_report("max_at_k", bench, size=size, k=k)
            first = group_report("max_at_k", bench, size=size, k=k, order="first")
            gaps.append(float(np.abs(whole.mean_SA[0] - target_A).max()))
            errors[size, k, scale] = float(np.linalg.norm(first.mean_SA[0] - target_A))
    slopes = [math.log10(errors[*key, 1e-2] / errors[*key, 1e-3]) for key in ((2, 2), (3, 2), (4, 3))]
    gaps += [max(0.0, abs(slope - 2.0) - 0.2) for slope in slopes]
    slope_text = ", ".join(f"{slope:.2f}" for slope in slopes)
    return exact(gaps, 1e-10, f"largest distance from a sum over tuples; slopes {slope_text}, 2 expected")


def _max_gradient(pi_A: np.ndarray, reward_A: np.ndarray, k: int) -> np.ndarray:
    """Return d E[max of k rewards] / d logits by writing out all tuples."""
    total_A = np.zeros_like(pi_A)
    for chosen in product(range(len(pi_A)), repeat=k):
        score_A = np.bincount(chosen, minlength=len(pi_A)) - k * pi_A
        total_A += np.prod(pi_A[list(chosen)]) * reward_A[list(chosen)].max() * score_A
    return total_A
