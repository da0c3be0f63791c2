"""Claims about where training of a tabular softmax on a fixed mu ends, with exact expectations."""

from functools import partial

import numpy as np

from analysis.experiments.weights.asymre_phase import MU, REWARD
from analysis.lab import Evidence, Experiment, Part, exact, short_of
from analysis.worlds.fixed_data import drift_of, first_of_group
from testbed.exact import flows
from testbed.exact.flows import Drift

EXPERIMENT = Experiment(
    "limits",
    question="Where does training on a fixed mu end?",
    source="papers of the objectives, with each claim",
    systems={
        "OAPL": Part(
            "where it ends on a fixed mu and by which path, exactly; no generations saved",
            claims=(
                "oapl-minimizer-is-the-tilt-iff-temperatures-agree",
                "oapl-passes-through-collapse-at-small-beta2",
            ),
        ),
        "TOPR": Part(
            "where it ends offline without KL, and when it collapses, exactly; not the baseline",
            claims=("topr-limit-and-collapse",),
        ),
    },
)


@EXPERIMENT.claim(source="Arnal et al. (2025), AsymRE, arXiv:2506.20520; closed form derived")
def asymre_limit_is_a_filtered_policy() -> Evidence:
    """With a fixed mu and delta_v < 0, AsymRE ends at (c - level)+ / C, c = mu (R - V), C = V^mu - V, from
    any start; where V <= min R this is mu (R - V) / C and gains Var_mu(R) / C over V^mu.
    """
    gaps: list[float] = []
    starts = (MU, np.array([0.96, 0.01, 0.01, 0.01, 0.01]))
    for delta_v in (-1.0, -0.3, -0.1, -0.03, -0.01, -0.003):
        limit_K = flows.asymre_limit(MU, REWARD, delta_v)
        drift = drift_of("asymre", MU, REWARD, shift=delta_v)
        for start_K in starts:
            reached_K = flows.flow(drift, start_K, np.array([0.0, 1e6])).pi_TA[-1]
            gaps.append(float(np.abs(reached_K - limit_K).max()))
    value = float(MU @ REWARD)
    for delta_v in (-value, -0.5, -1.0):
        limit_K = flows.asymre_limit(MU, REWARD, delta_v)
        gaps.append(abs(float(limit_K @ REWARD) - value - float(MU @ (REWARD - value) ** 2) / -delta_v))
        gaps.append(float(np.abs(limit_K + MU * (REWARD - value - delta_v) / delta_v).max()))
    return exact(gaps, 1e-7, "largest distance of flow or value from the closed form")


@EXPERIMENT.claim(
    source="corrects the phase transition at delta_v = 0 stated for Arnal et al. (2025), arXiv:2506.20520"
)
def asymre_collapses_before_zero() -> Evidence:
    """AsymRE on a fixed mu leaves one action once V^mu - V <= c(1) - c(2), so already for a delta_v below 0
    unless the two largest tie; whether the value peaks before that depends on the instance.
    """
    gaps, peaks = [], []
    instances = (
        (MU, REWARD),
        (np.full(5, 0.2), REWARD),
        (np.array([0.3, 0.6, 0.1]), np.array([0.0, 0.8, 1.0])),
    )
    for mu_K, reward_K in instances:
        edge = flows.asymre_transition(mu_K, reward_K)
        gaps.append(short_of(-edge, 1e-4))
        for factor in (0.5, 0.9, 0.999, 1.001, 1.1, 2.0):
            support = int((flows.asymre_limit(mu_K, reward_K, factor * edge) > 0).sum())
            gaps.append(0.0 if (support == 1) == (factor < 1) else 1.0)
        for factor in (0.8, 1.2):
            drift = drift_of("asymre", mu_K, reward_K, shift=factor * edge)
            reached_K = flows.flow(drift, mu_K, np.array([0.0, 1e6])).pi_TA[-1]
            gaps.append(0.0 if (reached_K.max() > 1 - 1e-6) == (factor < 1) else 1.0)
        grid = [flows.asymre_limit(mu_K, reward_K, d) @ reward_K for d in np.linspace(-1.0, edge, 200)]
        peaks.append(float(max(grid) - grid[-1]))
    gaps += [short_of(peaks[0], 0.05), peaks[1]]
    note = f"sides of the transition; value lost from its peak: {', '.join(f'{x:.3g}' for x in peaks)}"
    return exact(gaps, 1e-12, note)


@EXPERIMENT.claim(
    source="Ritter et al. (2026), OAPL, arXiv:2602.19362; Kimi k1.5, arXiv:2501.12599; fixed points derived"
)
def oapl_minimizer_is_the_tilt_iff_temperatures_agree() -> Evidence:
    """On exact expectations OAPL ends at mu exp(R/beta)/Z iff beta1 = beta2 = beta; for beta2 << beta1 at the
    filter mu A+ / E_mu A+, A = R - V*. Kimi-OPMD with a mean baseline ends softer than the tilt.
    """
    gaps: list[float] = []
    for beta1, beta2 in ((1.0, 1.0), (0.3, 0.3), (1.0, 0.3), (1.0, 0.1)):
        closed_K = flows.oapl_stationary(MU, REWARD, beta1, beta2)
        drift = drift_of("oapl", MU, REWARD, scale=2 * beta2, beta1=beta1, beta2=beta2)
        gaps.append(float(np.abs(flows.flow(drift, MU, np.array([0.0, 1e5])).pi_TA[-1] - closed_K).max()))
        off = float(np.abs(closed_K - flows.tilt(MU, REWARD, beta2)).max())
        gaps.append(off if beta1 == beta2 else short_of(off, 0.01))
    filtered_K = MU * np.maximum(flows.oapl_advantage(MU, REWARD, 1.0), 0.0)
    apart = [
        float(np.abs(flows.oapl_stationary(MU, REWARD, 1.0, beta2) - filtered_K / filtered_K.sum()).max())
        for beta2 in (1e-2, 1e-3, 1e-4)
    ]
    gaps += [max(0.0, apart[-1] - 1e-2), max(0.0, apart[2] - apart[1]), max(0.0, apart[1] - apart[0])]
    kimi_K, tilt_K = flows.kimi_stationary(MU, REWARD, 0.1), flows.tilt(MU, REWARD, 0.1)
    drift = drift_of("kimi_opmd", MU, REWARD, tau=0.1)
    gaps.append(float(np.abs(flows.flow(drift, MU, np.array([0.0, 1e5])).pi_TA[-1] - kimi_K).max()))
    gaps.append(short_of(_entropy(kimi_K) - _entropy(tilt_K), 0.1))
    return exact(gaps, 1e-7, "largest distance of flow, closed form, tilt and filter")


@EXPERIMENT.claim(
    source="Ritter et al. (2026), OAPL, arXiv:2602.19362, default beta2 = 1e-3; path derived",
    kind="enumerated",
)
def oapl_passes_through_collapse_at_small_beta2() -> Evidence:
    """On a fixed mu with beta1 = 1, the entropy along OAPL's gradient flow falls to 2e-5 at beta2 = 1e-3
    before it recovers to 0.96; at beta2 = 0.1 it never falls more than 1% below its end, and at 1 never below
    its start.
    """
    paths = {}
    for beta2 in (1e-3, 0.1, 1.0):
        drift = drift_of("oapl", MU, REWARD, scale=2 * beta2, beta1=1.0, beta2=beta2)
        paths[beta2] = flows.flow(drift, MU, np.concatenate([[0.0], np.geomspace(1e-2, 1e6, 4000)])).entropy_T
    end = {beta2: _entropy(flows.oapl_stationary(MU, REWARD, 1.0, beta2)) for beta2 in paths}
    low = {beta2: float(entropy_T.min()) for beta2, entropy_T in paths.items()}
    gaps = [abs(float(entropy_T[-1]) - end[beta2]) for beta2, entropy_T in paths.items()]
    gaps += [max(0.0, abs(low[1e-3] - 2e-5) - 5e-7), max(0.0, abs(end[1e-3] - 0.96) - 5e-3)]
    gaps += [short_of(low[0.1], 0.99 * end[0.1]), short_of(low[1.0], float(paths[1.0][0]))]
    note = f"minima {low[1e-3]:.2g}, {low[0.1]:.4g}, {low[1.0]:.4g} at beta2 = 1e-3, 0.1, 1"
    return exact(gaps, 1e-6, note)


@EXPERIMENT.claim(source="Ritter et al. (2026), OAPL, arXiv:2602.19362; finite-group gaps derived")
def own_sample_shrinks_oapl_advantages() -> Evidence:
    """Because an answer is part of its own value estimate, OAPL's expected advantage gap between success and
    failure is below that of the rewards: 0.50, 0.76, 0.88, 0.94 at G = 2, 4, 8, 16 for beta1 = 1 and success
    rate 1/2; the gap grows with G towards 1.
    """
    stated = {
        (1.0, 0.5): (0.50, 0.76, 0.88, 0.94),
        (1.0, 0.1): (0.40, 0.67, 0.83, 0.91),
        (0.1, 0.1): (0.16, 0.35, 0.59, 0.81),
    }
    gaps: list[float] = []
    for (beta1, success), row in stated.items():
        regressed = partial(first_of_group, "oapl", scale=2.0, beta1=beta1, beta2=1.0)
        found = [flows.group_gap(success, group, regressed) for group in (2, 4, 8, 16)]
        gaps += [max(0.0, abs(x - y) - 0.005) for x, y in zip(found, row, strict=True)]
        gaps += [max(0.0, x - y) for x, y in zip(found, [*found[1:], 1.0], strict=True)]
    return exact(gaps, 1e-12, "distance from the stated two digits beyond rounding, or fall along G")


@EXPERIMENT.claim(source="Gao et al. (2024), REBEL, arXiv:2404.16767")
def pairwise_residuals_have_no_group_bias() -> Evidence:
    """A pairwise residual keeps the full gap 1 between success and failure at every G, 2 included, and its
    flow ends at the tilt mu exp(eta R)/Z.
    """
    gaps = [
        abs(flows.group_gap(success, group, partial(first_of_group, "rebel", scale=4.0)) - 1.0)
        for success in (0.1, 0.5)
        for group in (2, 4, 8)
    ]
    for eta in (0.5, 1.0, 3.0):
        drift, tilt_K = drift_of("rebel", MU, REWARD, eta=eta), flows.tilt(MU, REWARD, 1.0 / eta)
        gaps.append(float(np.abs(drift(np.log(tilt_K))).max()))
        gaps.append(float(np.abs(flows.flow(drift, MU, np.array([0.0, 1e3])).pi_TA[-1] - tilt_K).max()))
    return exact(gaps, 1e-9, "largest distance of a gap from 1, or of the flow from the tilt")


@EXPERIMENT.claim(
    source="Yao et al. (2025), Group-relative REINFORCE, arXiv:2509.24203; counterexample derived"
)
def unclipped_reinforce_can_end_at_a_worse_action() -> Evidence:
    """REINFORCE with mean baseline on the fixed mu = (.3, .6, .1), R = (0, .8, 1) ends at the second action,
    the largest mu (R - V^mu), not at the best one.
    """
    mu_K, reward_K = np.array([0.3, 0.6, 0.1]), np.array([0.0, 0.8, 1.0])
    drift = drift_of("reinforce", mu_K, reward_K)
    second_K = np.array([0.0, 1.0, 0.0])
    reached_K = flows.flow(drift, mu_K, np.array([0.0, 1e4])).pi_TA[-1]
    gaps = [*np.abs(reached_K - second_K), *np.abs(flows.asymre_limit(mu_K, reward_K, 0.0) - second_K)]
    gaps += list(np.abs(drift(np.log(mu_K)) - np.array([-0.174, 0.132, 0.042])))
    return exact(gaps, 1e-9, "largest distance from the second action, or of the drift from its values")


@EXPERIMENT.claim(
    source="Le Roux et al. (2025), TOPR, arXiv:2503.14286; corrects a- P- >= P+ as the collapse criterion"
)
def topr_limit_and_collapse() -> Evidence:
    """On a fixed mu with R = +-1, TOPR with a- = 0 ends at mu given success; with a- > 0 one action is left
    as soon as P+ - a- P- <= c(1) - c(2), which comes before a- P- >= P+.
    """
    mu_K, success_K = np.array([0.2, 0.15, 0.25, 0.25, 0.15]), np.array([True, True, False, False, False])
    given_K = np.where(success_K, mu_K, 0.0) / mu_K[success_K].sum()
    # The failures' ratio dies like 1 / time, hence the loose first distance.
    far = np.array([0.0, 1e6])
    signed_K = np.where(success_K, 1.0, -1.0)
    reached_K = flows.flow(_topr_drift(mu_K, signed_K, 0.0), mu_K, far).pi_TA[-1]
    gaps = [float(np.abs(flows.topr_limit(mu_K, success_K) - given_K).max())]
    gaps.append(max(0.0, float(np.abs(reached_K - given_K).max()) - 1e-5))
    # C = .35 - .65 a- reaches c(1) - c(2) = .05 at a- = 6/13, and 0 only at 7/13.
    for a_minus in (0.1, 0.3, 0.45, 6 / 13 - 1e-3, 6 / 13 + 1e-3, 0.5, 7 / 13 - 1e-3):
        limit_K = flows.topr_limit(mu_K, success_K, a_minus)
        gaps.append(0.0 if (int((limit_K > 0).sum()) == 1) == (a_minus > 6 / 13) else 1.0)
        if abs(a_minus - 6 / 13) > 1e-2:
            drift = _topr_drift(mu_K, signed_K, a_minus)
            gaps.append(float(np.abs(flows.flow(drift, mu_K, far).pi_TA[-1] - limit_K).max()))
    drift = _topr_drift(mu_K, signed_K, 0.6)
    gaps.append(1.0 - float(flows.flow(drift, mu_K, far).pi_TA[-1].max()))
    return exact(gaps, 1e-7, "largest distance of flow, closed form and predicted transition")


def _topr_drift(mu_K: np.ndarray, signed_K: np.ndarray, a_minus: float) -> Drift:
    """The paper's TOPR takes R = +-1 as it is, without a baseline."""
    return drift_of("topr", mu_K, signed_K, baseline=False, low=a_minus)


@EXPERIMENT.claim(
    source="second-order expansion of ln E w^2 in the drift: docs/theory/sequence-ratios.md",
    kind="enumerated",
)
def ess_cost_is_quadratic_only_in_coherent_lag() -> Evidence:
    """For small steps -ln(ESS / N) of a token chain grows linearly with length, and with lag it grows
    quadratically when the policy moves along one direction but linearly, on average, when it walks at random.
    exp(-Var ln w), the lognormal guess, fits small drift and fails a hundredfold later.
    """
    from analysis.experiments.weights.ess_theory import STEP, chain_cost, displacements

    def cost(drift: str, lag: int, length: int) -> tuple[float, float]:
        place_M, mass_M = displacements(drift, lag)
        # A tenth of the figure's step: here the expansion is judged, there its end.
        found_M2 = np.array([chain_cost(0.1 * STEP * place, length) for place in place_M])
        mean_2 = mass_M @ found_M2
        return float(mean_2[0]), float(mean_2[1])

    length = 64
    coherent, walk = (
        [cost(drift, lag, length)[0] for lag in (4, 8)] for drift in ("coherent", "random walk")
    )
    longer = cost("coherent", 4, 2 * length)[0]
    misses = [abs(coherent[1] / coherent[0] / 4 - 1), abs(walk[1] / walk[0] / 2 - 1)]
    misses += [abs(longer / coherent[0] / 2 - 1)]
    small, large = cost("coherent", 4, length), cost("coherent", 640, length)
    misses += [max(0.0, abs(small[1] / small[0] - 1) - 0.01), short_of(large[1] - large[0], np.log(100))]
    note = f"largest miss; at the far end exp(-Var ln w) is {np.exp(large[0] - large[1]):.1g} of the ESS"
    return exact(misses, 0.02, note)


def _entropy(pi_K: np.ndarray) -> float:
    """Return -sum pi ln pi, in nats."""
    positive_K = pi_K[pi_K > 0]
    return float(-(positive_K * np.log(positive_K)).sum())
