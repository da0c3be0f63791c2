"""Claims about weights that change inside a sequence: whose log-probabilities a correct ratio divides by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.claims import Evidence, exact
from analysis.comparisons import short_of
from analysis.experiment import Experiment
from envs.arrays import Floats

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


@EXPERIMENT.claim(
    "in-flight-ratios-need-token-stamps",
    source=f"{PIPELINE_RL}; bias derived",
    kind="exact",
    statement=(
        "When weights change inside responses, sequence weights that divide each token by the version that "
        "drew it have mean 1 and give pi's value exactly; those that divide all tokens by the version that "
        "began the response have another mean and another value."
    ),
)
def token_stamps() -> Evidence:
    """Return distances of E[w] from 1 and of E[w R] from J, on token trees whose versions change by level."""
    gaps: list[float] = []
    means: list[float] = []
    values: list[float] = []
    for tree, log_p_WSA in _trees():
        truth = float(tree.value(np.exp(log_p_WSA[-1])))
        for change in CHANGES:
            mu_L, reward_L, log_w = _weights(tree, log_p_WSA, change)
            w_L = np.exp(log_w["token"])
            gaps += [abs(float(mu_L @ w_L) - 1.0), abs(float(mu_L @ (w_L * reward_L)) / truth - 1.0)]
            first_L = np.exp(log_w["first"])
            means.append(abs(float(mu_L @ first_L) - 1.0))
            values.append(abs(float(mu_L @ (first_L * reward_L)) / truth - 1.0))
    note = (
        f"distance of E[w] from 1 and relative one of E[w R] from J; with the first version's stamp E[w] is "
        f"off by {min(means):.2g} to {max(means):.2g}, E[w R] by {min(values):.2g} to {max(values):.2g}"
    )
    return exact([*gaps, short_of(min(means), CLEARLY), short_of(min(values), CLEARLY)], 1e-9, note)


@EXPERIMENT.claim(
    "the-newest-stamp-hides-its-bias",
    source=f"{PIPELINE_RL}; derived",
    kind="exact",
    statement=(
        "Stamped as a whole with the newest version, at which the trainer is, responses have weights of "
        "exactly 1, so ESS is 1 whatever came before; the estimate of J is off by exactly the difference in "
        "value between the mixed policy and pi."
    ),
)
def newest_stamp() -> Evidence:
    """Return distances of the weights from 1 and of the bias from J(mixed) - J(pi)."""
    gaps, biases = [], []
    for tree, log_p_WSA in _trees():
        truth = float(tree.value(np.exp(log_p_WSA[-1])))
        for change in CHANGES[2:]:
            mu_L, reward_L, log_w = _weights(tree, log_p_WSA, change)
            w_L = np.exp(log_w["last"])
            bias = float(mu_L @ (w_L * reward_L)) - truth
            mixed = float(tree.value(np.exp(_by_level(tree, log_p_WSA, change))))
            gaps += [float(np.abs(w_L - 1.0).max()), abs(bias - (mixed - truth))]
            biases.append(abs(bias) / truth)
    note = f"distances from what is said; relative bias {min(biases):.2g} to {max(biases):.2g}"
    return exact([*gaps, short_of(min(biases), CLEARLY)], 1e-9, note)


@EXPERIMENT.claim(
    "a-recomputed-cache-has-per-token-laws",
    source=f"{PIPELINE_RL}; AReaL, arXiv:2505.24298, interruptible generation",
    kind="exact",
    statement=(
        "If keys and values are computed anew at every change of weights, the log-probability that the "
        "sampler notes for a token is the policy's at that token's version; if they are kept, it is so up to "
        "the first change, and behind it that of no version."
    ),
)
def recomputed() -> Evidence:
    """Return differences in nats of a small transformer's noted and recomputed log-probabilities."""
    import torch

    policy, rollout, theta_RWP = _transformer()
    uniform_RBT = torch.rand(
        rollout.token_RBT.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    gaps, apart = [], []
    for change in CHANGES:
        version_11T = torch.tensor(change)[None, None]
        given = theta_RWP, version_11T, rollout.prompt_RNQ, rollout.group, uniform_RBT
        for cache in ("recomputed", "kept"):
            token, mask, noted = policy.sample_in_flight(*given, cache)
            where = rollout.prompt_RNQ, token, mask
            own = policy.logp_in_flight(theta_RWP, version_11T, *where, "recomputed")
            first = next(t for t, version in enumerate(change) if version != change[0])
            same = slice(0, first) if cache == "kept" else slice(None)
            gaps.append(float((noted - own)[..., same].abs().max()))
            if cache == "kept":
                every = [policy.logp(theta_RWP[:, v], *where) for v in range(3)]
                apart += [float((noted - one)[..., first:].abs().mean()) for one in every]
    gaps.append(short_of(min(apart), CLEARLY))
    return exact(gaps, 1e-9, f"nats; a kept cache's laws are {min(apart):.2g} or more from every version's")


@EXPERIMENT.claim(
    "a-kept-cache-is-a-law-of-its-own",
    source=f"{PIPELINE_RL}, which keeps the cache; derived",
    kind="exact",
    statement=(
        "With a kept cache the noted log-probabilities are those of a law over responses: weights against "
        "them have mean 1 and give pi's value and gradient exactly. Against the log-probabilities that a "
        "trainer recomputes at each token's version value and gradient are biased, and so is the mean unless "
        "all tokens behind the first change are at the trainer's version."
    ),
)
def kept() -> Evidence:
    """Return distances of E[w], E[w R] and its gradient over all responses of a small transformer."""
    import torch

    policy, rollout, theta_RWP = _transformer()
    where = rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT
    theta_RP = theta_RWP[:, -1].clone().requires_grad_()
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
            policy.logp_in_flight(theta_RWP, versions, *where, cache).sum(-1)[0]
            for cache in ("kept", "recomputed")
        )
        mu_B = noted.exp() / rollout.prompt_RNQ.shape[1]
        for log_mu_B, into in ((noted, gaps), (own, biases)):
            mean, found, slope = estimates(mu_B, (log_pi_B.detach() - log_mu_B).exp())
            into.append(abs(found / value - 1.0))
            into.append(float(np.linalg.norm(slope - gradient) / np.linalg.norm(gradient)))
            newest = set(change) - {change[0]} == {len(theta_RWP[0]) - 1}
            (gaps if log_mu_B is noted or newest else biases).append(abs(mean - 1.0))
    note = f"relative; against recomputed log-probabilities {min(biases):.2g} to {max(biases):.2g}"
    return exact([*gaps, short_of(min(biases), CLEARLY)], 1e-9, note)


def _trees() -> list[tuple[Any, Floats]]:
    """Return token trees with the log-laws [W, S, A] of three versions that drift."""
    from envs.tokens.tree import tree

    found = []
    for task in ("running-sum", "length"):
        world = tree(task=task, prompts=2)
        steps_WSA = np.random.default_rng(11).standard_normal((3, world.states, world.actions))
        logits_WSA = (np.array([1.0, 0.6, 0.6])[:, None, None] * steps_WSA).cumsum(0)
        found.append((world, logits_WSA - np.log(np.exp(logits_WSA).sum(-1, keepdims=True))))
    return found


def _by_level(tree: Any, log_p_WSA: Floats, change: tuple[int, ...]) -> Floats:
    """Return the table whose states of depth t have the law of version change[t], the last one beyond it."""
    level_S = np.searchsorted(tree.level, np.arange(tree.states) % tree.nodes, side="right") - 1
    version_S = np.array(change)[np.minimum(level_S, len(change) - 1)]
    mixed_SA: Floats = log_p_WSA[version_S, np.arange(tree.states)]
    return mixed_SA


def _weights(
    tree: Any, log_p_WSA: Floats, change: tuple[int, ...]
) -> tuple[Floats, Floats, dict[str, Floats]]:
    """Return each response's probability under the mixed policy, its reward, and log weights by stamp."""
    from testbed.mismatch.ratio_distribution import tree_responses

    state_LT, token_LT, mask_LT = tree_responses(tree)

    def total(log_p_SA: Floats) -> Floats:
        sum_L: Floats = np.where(mask_LT, log_p_SA[state_LT, token_LT], 0.0).sum(-1)
        return sum_L

    log_mu_L, log_pi_L = total(_by_level(tree, log_p_WSA, change)), total(log_p_WSA[-1])
    stamped = {"token": log_mu_L, "first": total(log_p_WSA[change[0]]), "last": total(log_p_WSA[change[-1]])}
    prompt_LQ = np.repeat(tree.prompt_NQ, len(token_LT) // len(tree.prompt_NQ), 0)
    reward_L = tree.task.score(prompt_LQ, token_LT, mask_LT)
    weights = {name: log_pi_L - log_L for name, log_L in stamped.items()}
    return np.exp(log_mu_L) / len(tree.prompt_NQ), reward_L, weights


def _transformer() -> tuple[Any, Rollout, Any]:
    """Return a small transformer, every response to two prompts, and three versions of weights [1, W, P]."""
    import torch

    from envs.catalog import token_task
    from testbed.mismatch.report import every_rollout
    from testbed.policies.toy.transformer import ToyTransformer

    task = token_task("running-sum", {"digits": 3, "modulus": 3})
    policy = ToyTransformer(task, width=8, heads=2, dtype=torch.float64)
    rollout = every_rollout(task, task.prompts(np.random.default_rng(0), 2), replicas=1)
    base, *drift = policy.initial((5, 6, 7))
    theta_WP = torch.stack([3 * base, 3 * base + drift[0], 3 * base + drift[0] + drift[1]])
    return policy, rollout, theta_WP[None]
