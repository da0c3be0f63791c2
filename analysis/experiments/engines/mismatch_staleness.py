"""Claims about mismatch and lag as two factors: their effects on the log-ratio and on training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.kernels.on_use import torch
from analysis.lab import Evidence, Experiment, Floats, Plot, exact, short_of
from testbed.config.run import Run, grid

if TYPE_CHECKING:
    from testbed.mismatch.ratio_distribution import RatioDistribution

PI = np.array([0.7, 0.2, 0.1])
DRIFT = np.array([0.9, -0.4, 0.2])
"""Direction in which the logits of PI drift."""
SIGMA = "mismatch_args.sigma"

TREE = Run(task="tree", prompts=16, group=8, steps=200, learning_rate=3.0, mismatch="logit-noise")
"""Four prompts of three digits modulo 3, a softmax per prompt and prefix: everything is known exactly."""
SIGMAS = (0.0, 0.4, 0.8, 1.2, 1.6)
LAGS = (0, 2, 4, 8, 16, 32)
SEEDS = range(10, 18)


def cells() -> tuple[Run, ...]:
    """Logit noise by lag, with and without sequence weights; beside each noise, a run that never learns."""
    found: list[Run] = []
    for sigma in SIGMAS:
        noisy = replace(TREE, mismatch_args=(("sigma", sigma),))
        found += grid(noisy, recipe=["reinforce", "importance"], lag=LAGS, seed=SEEDS)
        found += grid(noisy, recipe=["reinforce"], learning_rate=[0.0], lag=[0, LAGS[-1]], seed=SEEDS)
    return tuple(found)


EXPERIMENT = Experiment(
    question="Do engine mismatch and staleness add up, in the log-ratio and in what they cost?",
    source="landscape of rollout-trainer mismatch reports; lag and mismatch as two factors of pi/mu",
    differs="logit noise of known size in place of an engine, on a token tree that is known exactly",
    cells=cells, fresh=range(1000, 1016),
    keys=("recipe", "learning_rate", "mismatch_args.sigma", "lag", "seed"),
    metrics=(
        *("exact/value", "mean exact/value", "mean exact/ess_kish_sequence", "min exact/ess_kish_sequence"),
        *("first exact/kl_pi_mu", "exact/kl_pi_mu"),
    ),
    figure=Plot(
        "heat map", x="lag: lag (updates)", y=f"{SIGMA}: sigma of the logits",
        value="mean exact/ess_kish_sequence: ESS / N, no weights",
        where={"recipe": "reinforce", "learning_rate": 3.0},
        also=(
            {"value": "exact/value: final value, no weights"},
            {
                "value": "exact/value: final value, weights",
                "where": {"recipe": "importance", "learning_rate": 3.0},
            },
        ),
    ),
)  # fmt: skip


@EXPERIMENT.claim(
    "at-learning-rate-zero-all-drift-is-mismatch",
    source="control arm against drift at learning rate 0, allenai/open-instruct issue 1473; derived",
)
def at_learning_rate_zero_all_drift_is_mismatch() -> Evidence:
    """With learning rate 0 lag changes no logged bit but the ages, which are the lag, whatever the engine; at
    rate 1 it changes a quarter of the columns or more. At rate 0 without an engine the ratio is 1, and with
    one that draws nothing its exact distribution is the same in every batch.
    """
    from testbed.worlds.build_world import build_world
    from testbed.worlds.world import BehaviorWeights

    arguments: tuple[tuple[str, Any], ...]
    still = Run(task="tree", prompts=4, group=4, steps=6, learning_rate=0.0, log_every=1)
    gaps, least = [], np.inf
    for name, arguments in (("off", ()), ("logit-noise", (("sigma", 0.5),)), ("temperature", ())):
        gaps += _bits_that_lag_changes(replace(still, mismatch=name, mismatch_args=arguments))
    moved = _bits_that_lag_changes(replace(still, learning_rate=1.0))
    gaps.append(short_of(float(np.mean(moved)), 0.25))
    for name in ("off", "fp8-tensor", "temperature", "bf16"):
        arguments = (("matrices", "all"),) if name == "fp8-tensor" else ()
        world: Any = build_world((replace(still, mismatch=name, mismatch_args=arguments),))
        draws_RP = np.random.default_rng(3).standard_normal(world.initial().shape)
        theta_RP = world.initial() + 2.0 * torch.from_numpy(draws_RP)
        laws = [world.truth(theta_RP, theta_RP, step, BehaviorWeights(theta_RP)) for step in range(4)]
        kl = np.array([law["exact/kl_mu_pi"][0] for law in laws])
        gaps.append(float(np.ptp(kl)))
        if name == "off":
            gaps.append(float(abs(kl[0])))
        else:
            least = min(least, float(kl[0]))
    gaps.append(short_of(least, 1e-6))
    return exact(gaps, 1e-12, f"columns changed by lag, or movement of KL; the least KL is {least:.2g} nats")


def _bits_that_lag_changes(run: Any) -> list[float]:
    """Return 0 for each logged column equal at lag 4, else 1; and the distance of the last age from 4."""
    from testbed.training.loop import train

    fresh, stale = train(run), train(replace(run, lag=4))
    own = ("cell", "lag", "staleness/age_mean_token", "staleness/age_max_token")
    pairs = [(np.asarray(fresh[key]), np.asarray(stale[key])) for key in fresh if key not in own]
    same = [np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating)) for a, b in pairs]
    age = float(np.asarray(stale["staleness/age_mean_token"])[-1])
    return [*(float(not each) for each in same), abs(age - 4.0)]


@EXPERIMENT.claim(
    "lag-and-mismatch-variances-add-only-if-uncorrelated",
    source="two-factor ratio pi_t/mu = pi_t/pi_(t-k) times pi_(t-k)/mu; derived",
)
def lag_and_mismatch_variances_add_only_if_uncorrelated() -> Evidence:
    """The variances of the two log-ratios add up for fresh noise, up to a share that halves with their size;
    a sampler that is cooler by as much as the policy has sharpened since cancels it, and one that is hotter
    by as little doubles the sum.
    """
    share = [_noise_excess(size) for size in (0.02, 0.01, 0.005)]
    gaps = [abs(share[i] / share[i + 1] - 2.0) for i in range(2)]
    cooler, hotter = (_temperature_excess(sign, 1e-3) for sign in (1.0, -1.0))
    exactly = _temperature_excess(1.0, 0.3)
    gaps += [abs(exactly + 1.0), abs(cooler + 1.0), abs(hotter - 1.0)]
    note = (
        f"distance from the stated factors; share of the sum at size 0.02 under noise {share[0]:+.2g}, "
        f"cooler {cooler:+.3g}, hotter {hotter:+.3g}"
    )
    return exact(gaps, 0.05, note)


def _moments(log_pi_A: Floats, log_old_A: Floats, log_mu_A: Floats) -> Floats:
    """Return variances under mu of log pi/mu, log pi/old and log old/mu of one token."""
    mu_A, lag_A = np.exp(log_mu_A), log_pi_A - log_old_A
    total, engine = (_law(log_A, log_mu_A).std ** 2 for log_A in (log_pi_A, log_old_A))
    return np.array([total, mu_A @ (lag_A - mu_A @ lag_A) ** 2, engine])


def _law(log_pi_A: Floats, log_mu_A: Floats, length: int = 1) -> RatioDistribution:
    """Return the exact distribution of log pi/mu of a sequence of `length` independent tokens."""
    from testbed.mismatch.ratio_distribution import enumerated_distribution

    token_XT = np.indices((len(log_pi_A),) * length).reshape(length, -1).T
    return enumerated_distribution(log_pi_A[token_XT], log_mu_A[token_XT], np.ones(token_XT.shape))


def _softmax_log(logit_A: Floats) -> Floats:
    found: Floats = logit_A - np.log(np.exp(logit_A).sum())
    return found


def _noises(size: float) -> Iterator[Floats]:
    """Yield every vector of +-size, one entry per token."""
    for corner in np.ndindex(*(2,) * len(PI)):
        yield size * (2.0 * np.array(corner) - 1.0)


def _noise_excess(size: float) -> float:
    """Return (total - sum) / sum of the variances, averaged over noise as large as the drift."""
    old_A = np.log(PI)
    pi_A = _softmax_log(old_A + size * DRIFT)
    total, lag, noise = np.mean(
        [_moments(pi_A, old_A, _softmax_log(old_A + z_A)) for z_A in _noises(size)], axis=0
    )
    return float((total - lag - noise) / (lag + noise))


def _temperature_excess(sign: float, size: float) -> float:
    """Return the same where the policy sharpened by 1 + size and the sampler is cooler (1) or hotter (-1)."""
    from testbed.mismatch import engine
    from testbed.mismatch.behavior import Behavior
    from testbed.policies.tabular_policy import TabularPolicy

    old_A = np.log(PI)
    hot = engine("temperature", temperature=1.0 / (1.0 + sign * size))
    sampler = Behavior(TabularPolicy(1, len(PI)), hot, (0,))
    mu_A = sampler.log_table(torch.from_numpy(old_A)[None], step=0).numpy()[0, 0]
    total, lag, mismatch = _moments(_softmax_log((1 + size) * old_A), old_A, mu_A)
    return float((total - lag - mismatch) / (lag + mismatch))


@EXPERIMENT.claim(
    "lag-log-ratio-grows-linearly-if-coherent-and-as-a-root-if-not",
    source="drift of the log-ratio with lag; derived, conditions added",
)
def lag_log_ratio_grows_linearly_if_coherent_and_as_a_root_if_not() -> Evidence:
    """Where every state has the same distribution, a sequence's log(pi_t/pi_(t-k)) has standard deviation
    exactly k sqrt(T) times a token's at lag 1 if each update moves the logits alike, and over all random
    walks of the logits its mean square grows as k T.
    """
    one = float(np.sqrt(_variance(0.3 * DRIFT, 1)))
    gaps = [
        abs(np.sqrt(_variance(0.3 * lag * DRIFT, length)) / one - lag * np.sqrt(length))
        for lag in range(1, 9)
        for length in range(1, 4)
    ]
    steps = list(_noises(0.3))
    walks, means = [np.zeros(len(PI))], []
    for _ in range(4):
        walks = [walk_A + step_A for walk_A in walks for step_A in steps]
        means.append(np.mean([_variance(walk_A, 1) for walk_A in walks]))
    gaps += [abs(means[k] / means[0] - (k + 1)) for k in range(4)]
    gaps += [abs(np.mean([_variance(z_A, 2) for z_A in steps]) / means[0] - 2.0)]
    return exact(gaps, 1e-9, "largest distance of std or mean variance, relative to lag 1, from its law")


def _variance(move_A: Floats, length: int) -> float:
    """Return Var_mu of log pi/mu of a sequence of tokens, mu = PI, after its logits moved; by enumeration."""
    return float(_law(_softmax_log(np.log(PI) + move_A), np.log(PI), length).std ** 2)
