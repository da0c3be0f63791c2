"""Claims about weights that change inside a sequence: whose log-probabilities a correct ratio divides by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.lab import Evidence, Experiment, exact, short_of
from envs.arrays import Floats
from envs.catalog import token_task

if TYPE_CHECKING:
    from testbed.data.rollout import Rollout

EXPERIMENT = Experiment(
    "in-flight",
    question="Whose log-probabilities must a ratio divide by when weights change inside a sequence?",
    source="PipelineRL, arXiv:2509.19128",
)

PIPELINE_RL = "PipelineRL, arXiv:2509.19128"
CHANGES = ((0, 0, 1), (0, 1, 1), (0, 1, 2), (1, 1, 2))
"""Versions of the three tokens of a response; the trainer is at version 2."""
CLEARLY = 1e-4
"""What must be biased has to be so by more than this, relative to what is estimated; rounding is 1e-12."""


@EXPERIMENT.claim(source=f"{PIPELINE_RL}; AReaL, arXiv:2505.24298, interruptible generation")
def a_recomputed_cache_has_per_token_laws() -> Evidence:
    """If keys and values are computed anew at every change of weights, the log-probability that the sampler
    notes for a token is the policy's at that token's version; if they are kept, it is so up to the first
    change, and behind it that of no version.
    """
    import torch

    policy, rollout, theta_RVP = _transformer()
    uniform_RBT = torch.rand(
        rollout.token_RBT.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    gaps, apart = [], []
    for change in CHANGES:
        version_11T = torch.tensor(change)[None, None]
        given = theta_RVP, version_11T, rollout.prompt_RNQ, rollout.group, uniform_RBT
        for cache in ("recomputed", "kept"):
            token, mask, noted = policy.sample_in_flight(*given, cache)
            where = rollout.prompt_RNQ, token, mask
            own = policy.logp_in_flight(theta_RVP, version_11T, *where, "recomputed")
            first = next(t for t, version in enumerate(change) if version != change[0])
            same = slice(0, first) if cache == "kept" else slice(None)
            gaps.append(float((noted - own)[..., same].abs().max()))
            if cache == "kept":
                every = [policy.logp(theta_RVP[:, v], *where) for v in range(3)]
                apart += [float((noted - one)[..., first:].abs().mean()) for one in every]
    gaps.append(short_of(min(apart), CLEARLY))
    return exact(gaps, 1e-9, f"nats; a kept cache's laws are {min(apart):.2g} or more from every version's")


@EXPERIMENT.claim(source=f"{PIPELINE_RL}, which keeps the cache; derived")
def a_kept_cache_is_a_law_of_its_own() -> Evidence:
    """With a kept cache the noted log-probabilities are those of a law over responses: weights against them
    have mean 1 and give pi's value and gradient exactly. Against the log-probabilities that a trainer
    recomputes at each token's version value and gradient are biased, and so is the mean unless all tokens
    behind the first change are at the trainer's version.
    """
    import torch

    policy, rollout, theta_RVP = _transformer()
    where = rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT
    theta_RP = theta_RVP[:, -1].clone().requires_grad_()
    log_pi_B = policy.logp(theta_RP, *where).sum(-1)[0]
    pi_B = log_pi_B.detach().exp() / rollout.prompt_RNQ.shape[1]

    def estimates(law_B: torch.Tensor, w_B: torch.Tensor) -> tuple[float, float, Floats]:
        """Return E[w], E[w R] and E[w R d log pi] under a law."""
        total = (law_B * w_B * rollout.reward_RB[0] * log_pi_B).sum()
        (gradient,) = torch.autograd.grad(total, theta_RP, retain_graph=True)
        return float(law_B @ w_B), float((law_B * w_B) @ rollout.reward_RB[0]), gradient.numpy()

    _, value, gradient = estimates(pi_B, torch.ones_like(pi_B))
    gaps: list[float] = []
    biases: list[float] = []
    for change in CHANGES:
        versions = torch.tensor(change)[None, None]
        noted, own = (
            policy.logp_in_flight(theta_RVP, versions, *where, cache).sum(-1)[0]
            for cache in ("kept", "recomputed")
        )
        mu_B = noted.exp() / rollout.prompt_RNQ.shape[1]
        for log_mu_B, into in ((noted, gaps), (own, biases)):
            mean, found, slope = estimates(mu_B, (log_pi_B.detach() - log_mu_B).exp())
            into.append(abs(found / value - 1.0))
            into.append(float(np.linalg.norm(slope - gradient) / np.linalg.norm(gradient)))
            newest = set(change) - {change[0]} == {len(theta_RVP[0]) - 1}
            (gaps if log_mu_B is noted or newest else biases).append(abs(mean - 1.0))
    note = f"relative; against recomputed log-probabilities {min(biases):.2g} to {max(biases):.2g}"
    return exact([*gaps, short_of(min(biases), CLEARLY)], 1e-9, note)


def _transformer() -> tuple[Any, Rollout, Any]:
    """Return a small transformer, every response to two prompts, and three versions of weights [1, V, P]."""
    import torch

    from testbed.mismatch.mismatch_report import every_rollout
    from testbed.policies.toy.transformer import ToyTransformer

    task = token_task("running-sum", {"digits": 3, "modulus": 3})
    policy = ToyTransformer(task, width=8, heads=2, dtype=torch.float64)
    rollout = every_rollout(task, task.prompts(np.random.default_rng(0), 2), replicas=1)
    base, *drift = policy.initial((5, 6, 7))
    theta_VP = torch.stack([3 * base, 3 * base + drift[0], 3 * base + drift[0] + drift[1]])
    return policy, rollout, theta_VP[None]
