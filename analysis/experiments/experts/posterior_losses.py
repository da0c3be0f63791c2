"""Losses whose minimum is the posterior: BRAIn's self-normalized weights, and the log-variance of TPS-DPS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import special

from analysis.lab import Evidence, Experiment, Part, Plot, Seeds, columns, exact, of_seeds, short_of
from analysis.worlds.teaching_worlds import AllResponses
from envs.arrays import Floats
from testbed.exact import flows
from testbed.exact.flows import tilt
from testbed.exact.posterior import (
    LOSSES,
    brain_steps,
    log_variance_drift,
    moments,
    path_steps,
    reverse_kl_drift,
)
from testbed.rng import generator

if TYPE_CHECKING:
    from torch import Tensor

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


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return modes found and KL to the posterior at time 30 of the flow, by loss and sampler."""
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
            yield columns(
                (seed,),
                samples=name,
                modes=found,
                kl=float(pi_A @ (path.log_pi_TA[-1] - np.log(posterior_A))),
            )


EXPERIMENT = Experiment(
    NAME,
    question="What do losses that fit a posterior lose or gain by samples that are not the policy's own?",
    source="Pandey et al. (2024), BRAIn, arXiv:2402.02479; TPS-DPS (2024), arXiv:2405.19961",
    differs=(
        "laws over 4 to 12 answers and 27 paths, enumerated samples and exact flows; no molecules, no "
        "control variate to learn"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"answers": ANSWERS, "beta": BETA, "time": TIME}),
    keys=("run", "seed", "samples"),
    metrics=("modes", "kl"),
    margins={"modes of 3": MARGIN},
    figure=Plot("distribution", x="samples", y="kl: KL to the posterior, nats"),
    systems={
        "TPS-DPS": Part(
            claims=(
                "log-variance-has-none-at-the-posterior",
                "log-variance-of-paths-has-none-at-the-posterior",
                "replayed-samples-find-more-modes",
            )
        ),
        "BRAIn": Part(
            "bias and variance of its self-normalized weights; posterior-regret has the comparison",
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
    source="Pandey et al. (2024); the rate is that of self-normalized weights, Owen (2013), chapter 9"
)
def self_normalized_posterior_bias_falls_as_one_over_n() -> Evidence:
    """By enumeration over samples of 4 to 64 answers the bias of the posterior step from self-normalized
    weights falls as 1/N: N times it changes by less than 3% from 32 to 64. The baseline leaves a bias of that
    order.
    """
    gaps = []
    for seed in range(4):
        for baseline in (True, False):
            bias = {n: _bias(seed, n, baseline) for n in (4, 32, 64)}
            gaps += [abs(64 * bias[64] / (32 * bias[32]) - 1) - 0.03, short_of(bias[4], 1e-3)]
    return exact(gaps, 0.0, "change of N times the bias from 32 to 64 answers, less 3%")


def _bias(seed: int, n: int, baseline: bool) -> float:
    """|E step - (posterior - pi)| with pi between reference and posterior."""
    ref_A, sampler_A, reward_A = bandit(seed)
    log_pi_A = special.log_softmax(np.log(ref_A) + reward_A)
    step_RA, chance_R, target_A = brain_steps(
        log_pi_A, sampler_A, ref_A, reward_A, n=n, beta=0.5, baseline=baseline
    )
    return float(np.linalg.norm(moments(step_RA, chance_R)[0] - target_A))


@EXPERIMENT.claim(source="Pandey et al. (2024), on the self-normalized baseline")
def brain_baseline_has_no_variance_at_the_posterior() -> Evidence:
    """At the posterior every sample's step is zero with BRAIn's baseline, whoever sampled; without it the
    steps scatter and their mean is biased.
    """
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


@EXPERIMENT.claim(source="Richter et al. (2020), VarGrad, arXiv:2010.10436; TPS-DPS, arXiv:2405.19961")
def log_variance_has_none_at_the_posterior() -> Evidence:
    """At the posterior a batch's log-variance step is zero for any sampler, and so is reverse KL's with the
    exact baseline; reverse KL's without one scatters. On policy all three have the mean of the KL's gradient.
    """
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


EXPERIMENT.claim(
    "replayed-samples-find-more-modes",
    "From a start on one of three modes replay finds half a mode more by time 30 than own samples.",
).compare("modes", {"samples": "replay"}, {"samples": "on policy"}, by=MARGIN)


@EXPERIMENT.claim(source="Richter et al. (2020), VarGrad, arXiv:2010.10436; TPS-DPS, arXiv:2405.19961")
def log_variance_of_paths_has_none_at_the_posterior() -> Evidence:
    """On a tree of 27 paths of three steps, with the project's trajectory-balance loss on pairs, the step of
    every pair is zero at the posterior, whoever walks; elsewhere steps of own pairs scatter around twice the
    gradient of KL(pi, posterior), and those of another walker's have another mean.
    """
    import torch

    world, beta, gaps = AllResponses(3, 3), 0.5, []
    for seed in range(3):
        ref, pi, other = (world.random(10 * seed + k) for k in range(3))
        reward_L = torch.from_numpy(generator(seed, "posterior paths").random(27))
        posterior = world.of_law(world.law(ref) * (reward_L / beta).exp())
        gaps.append(float(_pairs(posterior, ref, reward_L, beta).abs().max()))
        step_LLP = _pairs(pi, ref, reward_L, beta)
        leaf = pi.clone().requires_grad_()
        logp_L = world.logp(leaf).sum(-1)
        gap_L = logp_L - world.logp(ref).sum(-1) - reward_L / beta
        (kl_P,) = torch.autograd.grad((logp_L.exp() * gap_L).sum(), leaf)
        mean = {
            name: torch.einsum("l,k,lkp->p", world.law(who), world.law(who), step_LLP)
            for name, who in (("own", pi), ("other", other))
        }
        gaps.append(float((mean["own"] - kl_P.flatten()).abs().max()))
        gaps.append(short_of(float(step_LLP.std(dim=(0, 1)).max()), 1e-2))
        gaps.append(short_of(float((mean["other"] - kl_P.flatten()).norm()), 1e-2))
    return exact(gaps, 1e-12, "largest step at the posterior, distance of a mean, or lack of a difference")


def _pairs(pi: Tensor, ref: Tensor, reward_L: Tensor, beta: float) -> Tensor:
    """Return the loss's gradient [L, L, P] of every pair of paths as a group, halved."""
    import torch

    from testbed.data.batch import Batch
    from testbed.objectives.regression.tba import tba

    world = AllResponses(3, 3)
    left, right = torch.cartesian_prod(torch.arange(27), torch.arange(27)).T
    row_B = torch.stack([left, right], dim=1).flatten()
    logp_LT = world.logp(pi).requires_grad_()
    batch = Batch(
        logp_mu_BT=logp_LT.detach()[row_B],
        adv_BT=torch.zeros(len(row_B), 3, dtype=torch.float64),
        mask_BT=torch.ones(len(row_B), 3, dtype=torch.bool),
        reward_B=reward_L[row_B],
        group_B=torch.arange(len(row_B)) // 2,
        logp_ref_BT=world.logp(ref)[row_B],
    )
    logp_BT = logp_LT.detach()[row_B].requires_grad_()
    (slope_BT,) = torch.autograd.grad(tba(logp_BT, batch, beta=beta).sum(), logp_BT)
    score_LTP = torch.zeros(27, 3, world.states, 3, dtype=torch.float64)
    law_SV = pi.softmax(-1)
    for t in range(3):
        state_L, token_L = world.state_LT[:, t], world.token_LT[:, t]
        score_LTP[torch.arange(27), t, state_L] = -law_SV[state_L]
        score_LTP[torch.arange(27), t, state_L, token_L] += 1
    each_BP = torch.einsum("bt,btp->bp", slope_BT, score_LTP.flatten(2)[row_B])
    return each_BP.unflatten(0, (-1, 2)).sum(1).unflatten(0, (27, 27)) / 2
