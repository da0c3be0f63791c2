"""Losses whose minimum is the posterior: BRAIn's self-normalized weights, and the log-variance of TPS-DPS."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import special

from analysis.claims import Evidence, exact
from analysis.comparisons import must_exceed, short_of
from analysis.experiment import Experiment, Part
from analysis.load import Table
from analysis.plot import Plot
from analysis.replication import Seeds, difference, repeated
from envs.arrays import Floats
from testbed.rng import generator

NAME = "posterior-losses"
SEEDS, ANSWERS, BETA, TIME = 24, 12, 0.2, 30.0
MODES, KEPT = 3, 0.5
"""Answers with reward 1, and the share of its mass in the posterior with which one counts as found."""
MARGIN = 0.5
"""Modes found. Set before the table was made."""


def world(seed: int) -> tuple[Floats, Floats, Floats]:
    """Return a start that is nearly on one mode, an even reference and rewards with three modes."""
    rng = generator(seed, NAME)
    reward_A = np.where(np.arange(ANSWERS) < MODES, 1.0, 0.3 * rng.random(ANSWERS))
    logit_A = rng.normal(size=ANSWERS) + np.where(np.arange(ANSWERS) == 0, 6.0, 0.0)
    return special.softmax(logit_A), np.full(ANSWERS, 1 / ANSWERS), reward_A


def rows(seeds: Seeds) -> pd.DataFrame:
    """Return modes found and KL to the posterior at time 30 of the flow, by loss and sampler."""
    from testbed.exact import flows
    from testbed.exact.posterior import log_variance_drift, reverse_kl_drift

    rows_ = []
    for seed in seeds:
        start_A, ref_A, reward_A = world(seed)
        posterior_A = flows.tilt(ref_A, reward_A, BETA)
        replay_A = (start_A + ref_A) / 2
        drifts = {
            "on policy": reverse_kl_drift(ref_A, reward_A, BETA),
            "frozen start": log_variance_drift(start_A, ref_A, reward_A, BETA),
            "replay": log_variance_drift(replay_A, ref_A, reward_A, BETA),
        }
        for name, drift in drifts.items():
            path = flows.flow(drift, start_A, np.array([0.0, TIME]))
            pi_A = path.pi_TA[-1]
            found = int((pi_A[:MODES] >= KEPT * posterior_A[:MODES]).sum())
            rows_.append((seed, name, found, float(pi_A @ (path.log_pi_TA[-1] - np.log(posterior_A)))))
    return pd.DataFrame(rows_, columns=["seed", "samples", "modes", "kl"])


def table() -> Table:
    """Return a row per run, seed and origin of the samples."""
    return Table.of(NAME, repeated(rows, SEEDS), {"answers": ANSWERS, "beta": BETA, "time": TIME})


EXPERIMENT = Experiment(
    NAME,
    question="What do losses that fit a posterior lose or gain by samples that are not the policy's own?",
    source="Pandey et al. (2024), BRAIn, arXiv:2402.02479; TPS-DPS (2024), arXiv:2405.19961",
    differs=(
        "laws over 4 to 12 answers, enumerated samples and exact flows; no paths, no control variate to learn"
    ),
    compute=table,
    keys=("run", "seed", "samples"),
    metrics=("modes", "kl"),
    margins={"modes of 3": MARGIN},
    figure=Plot("distribution", x="samples", y="kl", y_label="KL to the posterior, nats"),
    systems={
        "TPS-DPS": Part(
            "variance at the optimum and modes found with and without replay; no paths, no control variate",
            claims=("log-variance-has-none-at-the-posterior", "replayed-samples-find-more-modes"),
        ),
        "BRAIn": Part(
            "bias and variance of its self-normalized weights; no language model, no comparison with DPO",
            claims=(
                "self-normalized-posterior-bias-falls-as-one-over-n",
                "brain-baseline-has-no-variance-at-the-posterior",
            ),
        ),
    },
)


def bandit(seed: int) -> tuple[Floats, Floats, Floats]:
    """Return a reference, a sampler that has moved from it and rewards of 4 answers."""
    rng = generator(seed, "posterior bandit")
    ref_A, other_A = rng.dirichlet(np.full(4, 3.0), size=2)
    return ref_A, 0.5 * ref_A + 0.5 * other_A, rng.random(4)


@EXPERIMENT.claim(
    "self-normalized-posterior-bias-falls-as-one-over-n",
    source="Pandey et al. (2024); the rate is that of self-normalized weights, Owen (2013), chapter 9",
    statement=(
        "By enumeration over samples of 4 to 64 answers the bias of the posterior step from self-normalized "
        "weights falls as 1/N: N times it changes by less than 3% from 32 to 64. The baseline leaves a bias "
        "of that order."
    ),
)
def one_over_n() -> Evidence:
    """Return changes of N times the bias, with and without baseline, 4 bandits, and what the bias lacks at N
    = 4.
    """
    gaps = []
    for seed in range(4):
        for baseline in (True, False):
            bias = {n: _bias(seed, n, baseline) for n in (4, 32, 64)}
            gaps += [abs(64 * bias[64] / (32 * bias[32]) - 1) - 0.03, short_of(bias[4], 1e-3)]
    return exact(gaps, 0.0, "change of N times the bias from 32 to 64 answers, less 3%")


def _bias(seed: int, n: int, baseline: bool) -> float:
    """|E step - (posterior - pi)| with pi between reference and posterior."""
    from testbed.exact.posterior import brain_steps, moments

    ref_A, sampler_A, reward_A = bandit(seed)
    log_pi_A = special.log_softmax(np.log(ref_A) + reward_A)
    step_RA, chance_R, target_A = brain_steps(
        log_pi_A, sampler_A, ref_A, reward_A, n=n, beta=0.5, baseline=baseline
    )
    return float(np.linalg.norm(moments(step_RA, chance_R)[0] - target_A))


@EXPERIMENT.claim(
    "brain-baseline-has-no-variance-at-the-posterior",
    source="Pandey et al. (2024), on the self-normalized baseline",
    statement=(
        "At the posterior every sample's step is zero with BRAIn's baseline, whoever sampled; without it the "
        "steps scatter and their mean is biased."
    ),
)
def no_variance() -> Evidence:
    """Return the largest step with the baseline, and what variance and bias lack without it, 4 bandits."""
    from testbed.exact.flows import tilt
    from testbed.exact.posterior import brain_steps, moments

    gaps = []
    for seed in range(4):
        ref_A, sampler_A, reward_A = bandit(seed)
        at_A = np.log(tilt(ref_A, reward_A, 0.5))
        step_RA, _, _ = brain_steps(at_A, sampler_A, ref_A, reward_A, n=8, beta=0.5)
        plain = brain_steps(at_A, sampler_A, ref_A, reward_A, n=8, beta=0.5, baseline=False)
        mean_A, variance = moments(plain[0], plain[1])
        gaps += [
            float(np.abs(step_RA).max()),
            short_of(variance, 0.01),
            short_of(float(np.linalg.norm(mean_A)), 1e-3),
        ]
    return exact(gaps, 1e-12, "largest step at the posterior with the baseline")


@EXPERIMENT.claim(
    "log-variance-has-none-at-the-posterior",
    source="Richter et al. (2020), VarGrad, arXiv:2010.10436; TPS-DPS, arXiv:2405.19961",
    statement=(
        "At the posterior a batch's log-variance step is zero for any sampler, and so is reverse KL's with "
        "the exact baseline; reverse KL's without one scatters. On policy all three have the mean of the "
        "KL's gradient."
    ),
)
def log_variance() -> Evidence:
    """Return steps at the posterior, lack of variance without baseline, distances of means elsewhere, 4
    bandits.
    """
    from testbed.exact.flows import tilt
    from testbed.exact.posterior import LOSSES, moments, path_steps, reverse_kl_drift

    gaps = []
    for seed in range(4):
        ref_A, sampler_A, reward_A = bandit(seed)
        at_A = np.log(tilt(ref_A, reward_A, 0.5))
        for loss in LOSSES:
            step_RA, chance_R = path_steps(at_A, sampler_A, ref_A, reward_A, n=6, beta=0.5, loss=loss)
            if loss == "reverse KL":
                gaps.append(short_of(moments(step_RA, chance_R)[1], 1e-3))
            else:
                gaps.append(float(np.abs(step_RA).max()))
            steps = path_steps(np.log(ref_A), ref_A, ref_A, reward_A, n=6, beta=0.5, loss=loss)
            wanted_A = reverse_kl_drift(ref_A, reward_A, 0.5)(np.log(ref_A))
            gaps.append(float(np.abs(moments(*steps)[0] - wanted_A).max()))
    return exact(gaps, 1e-12, "largest step at the posterior, or distance of a mean on policy")


@EXPERIMENT.claim(
    "replayed-samples-find-more-modes",
    statement="From a start on one of three modes replay finds half a mode more by time 30 than own samples.",
)
def more_modes(table: pd.DataFrame) -> Evidence:
    """Return the evidence in both runs."""
    found = difference(table, "modes", {"samples": "replay"}, {"samples": "on policy"})
    return must_exceed(found, MARGIN, "modes found more, less a half")
