"""Claims about engine mismatch: how the sequence ratio grows, and what importance weights can undo."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.claims import Evidence, exact
from analysis.comparisons import short_of
from analysis.experiment import Experiment
from envs.arrays import Floats

EXPERIMENT = Experiment(
    "mismatch",
    question="How does the log-ratio of two engines grow with length, and what can importance weights undo?",
    source="papers on rollout precision and its correction, with each claim",
)

FULL_SUPPORT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bf16", {}),
    ("fp8-tensor", {}),
    ("fp8-block", {"block": 2}),
    ("int8", {}),
    ("layer-noise", {"sigma": 0.2}),
    ("temperature", {"temperature": 1.5}),
    ("logit-noise", {"sigma": 0.5}),
)
"""Engines that a tabular policy can have, with hyperparameters that make a visible difference."""

PI = np.array([0.7, 0.2, 0.1])
"""Next-token law of the claims about growth with length."""
SHIFTS = (np.array([-1.2, 1.5, 0.3]), np.array([-0.2, 0.5, -0.6]), np.array([0.1, 0.1, 0.3]))
"""Perturbations of its logits, equally likely."""


@EXPERIMENT.claim(
    "log-mismatch-variance-adds-over-tokens",
    source="sums of martingale differences; derived",
    kind="exact",
    statement=(
        "Under mu, log(pi/mu) of a sequence varies about its drift -sum_t KL(mu, pi) with a variance that is "
        "exactly the sum over tokens of E[Var(log ratio | state)], whatever the mismatch."
    ),
)
def variance_adds() -> Evidence:
    """Return relative differences of the two variances, per engine and replica, on a random token tree."""
    from testbed.mismatch.ratio_distribution import tree_responses

    gaps = []
    for tree, log_pi_SA, log_mu_SA in _tree_pairs():
        state_LT, token_LT, mask_LT = tree_responses(tree)
        mu_SA, d_SA = np.exp(log_mu_SA), log_pi_SA - log_mu_SA
        drift_S = (mu_SA * d_SA).sum(-1)
        spread_S = (mu_SA * (d_SA - drift_S[:, None]) ** 2).sum(-1)
        mu_L = _sequences(log_mu_SA, state_LT, token_LT, mask_LT) / len(tree.prompt_NQ)
        centered_L = np.where(mask_LT, d_SA[state_LT, token_LT] - drift_S[state_LT], 0.0).sum(-1)
        added = mu_L @ np.where(mask_LT, spread_S[state_LT], 0.0).sum(-1)
        gaps.append(abs(mu_L @ centered_L**2 / added - 1.0))
    return exact(gaps, 1e-9, "largest relative difference between the variance and the sum over tokens")


@EXPERIMENT.claim(
    "log-mismatch-grows-as-root-t",
    source="rollout precision as in Jet-RL, arXiv:2601.14243; growth derived, condition added",
    kind="exact",
    statement=(
        "Where every state has the same next-token law, the standard deviation of a sequence's log(pi/mu) is "
        "exactly sqrt(T) times a token's: for logit noise fresh per token, and for one that stays."
    ),
)
def root_t() -> Evidence:
    """Return distances of std(T) / std(1) from sqrt(T), by enumeration of noise and tokens, T = 1 to 5."""
    from testbed.mismatch.ratio_distribution import enumerated_distribution

    gaps = []
    fresh = _noisy_law(SHIFTS)
    for log_pi_A, log_mu_A in (fresh, *(_noisy_law((shift,)) for shift in SHIFTS)):
        std_T = []
        for length in range(1, 6):
            token_LT = np.indices((len(log_pi_A),) * length).reshape(length, -1).T
            full_LT = np.ones(token_LT.shape, dtype=bool)
            std_T.append(enumerated_distribution(log_pi_A[token_LT], log_mu_A[token_LT], full_LT).std)
        gaps += list(np.abs(np.array(std_T) / std_T[0] - np.sqrt(np.arange(1, 6))))
    return exact(gaps, 1e-9, "largest distance of std(T) / std(1) from sqrt(T)")


@EXPERIMENT.claim(
    "log-mismatch-outgrows-root-t-where-its-drift-varies",
    source="corrects 'grows as sqrt(T)' for perturbations that stay; derived",
    kind="exact",
    statement=(
        "Over draws of a perturbation that is kept for the whole sequence the variance of log(pi/mu) is "
        "T E[Var] + T^2 Var[KL(mu, pi) per token]: it outgrows T because draws, or regions of states, "
        "differ in KL, and by nothing else."
    ),
)
def outgrows() -> Evidence:
    """Return distances of the enumerated variance from T a + T^2 b, and what it lacks of outgrowing T."""
    from testbed.mismatch.ratio_distribution import enumerated_distribution

    laws = [_noisy_law((shift,)) for shift in SHIFTS]
    drift_Z = np.array([np.exp(mu) @ (pi - mu) for pi, mu in laws])
    spread_Z = np.array([np.exp(mu) @ (pi - mu - k) ** 2 for (pi, mu), k in zip(laws, drift_Z, strict=True)])
    gaps, variance_T = [], []
    for length in range(1, 7):
        token_LT = np.indices((len(PI),) * length).reshape(length, -1).T
        # The perturbation is part of the response: its own prompt, equally likely.
        log_pi_LT, log_mu_LT = (np.concatenate([law[which][token_LT] for law in laws]) for which in (0, 1))
        full_LT = np.ones(log_pi_LT.shape, dtype=bool)
        variance_T.append(enumerated_distribution(log_pi_LT, log_mu_LT, full_LT, len(laws)).std ** 2)
        gaps.append(abs(variance_T[-1] - length * spread_Z.mean() - length**2 * drift_Z.var()))
    growth = variance_T[-1] / variance_T[0]
    gaps.append(short_of(growth, 7.0))
    return exact(gaps, 1e-9, f"distance from the formula; Var at T = 6 is {growth:.3g} times that at T = 1")


@EXPERIMENT.claim(
    "sequence-weights-undo-full-support-mismatch",
    source="FP8 rollouts corrected in verl (docs, rollout correction); Jet-RL, arXiv:2601.14243; derived",
    kind="exact",
    statement=(
        "With rollouts in bf16, fp8 (e4m3), int8, under weight noise, logit noise or a higher temperature, "
        "the gradient weighted by the sequence ratio pi/mu is the exact gradient; unweighted it is biased, "
        "and weighted by token ratios it still is where later tokens count."
    ),
)
def full_support() -> Evidence:
    """Return relative errors of the weighted gradients on token trees, and what the others lack of a bias."""
    from testbed.mismatch.ratio_distribution import tree_distribution

    gaps: list[float] = []
    least = {"none": np.inf, "token": np.inf}
    for tree, log_pi_SA, log_mu_SA in _tree_pairs():
        truth_SA = tree.gradient(np.exp(log_pi_SA))
        found = {how: _gradient(tree, log_pi_SA, log_mu_SA, how) for how in ("none", "token", "sequence")}
        error = {how: _relative(gradient_SA, truth_SA) for how, gradient_SA in found.items()}
        gaps += [error["sequence"], abs(tree_distribution(tree, log_pi_SA, log_mu_SA).mass - 1.0)]
        if tree.end_token is None:  # the other task's reward is decided by the first token alone
            least = {how: min(least[how], error[how]) for how in least}
    gaps += [short_of(bias, 1e-6) for bias in least.values()]
    return exact(
        gaps, 1e-9, f"relative error; smallest bias {least['none']:.2g} raw, {least['token']:.2g} token"
    )


@EXPERIMENT.claim(
    "one-sided-truncation-loses-exactly-the-cut-mass",
    source="top-p or top-k on the sampler's side only, with importance weights; derived",
    kind="exact",
    statement=(
        "With top-p or top-k in the sampler only, E[W] is the mass that pi gives to what can be sampled and "
        "E[W R] is short of J by exactly the expected reward of the rest; for one token W is constant, so "
        "ESS is 1 however much is lost."
    ),
)
def truncation() -> Evidence:
    """Return distances of the expectations from pi restricted to the sampler's support, on token trees."""
    from testbed.mismatch.ratio_distribution import enumerated_distribution, tree_distribution, tree_responses

    gaps: list[float] = []
    lost: list[float] = []
    for tree, log_pi_SA, log_mu_SA in _tree_pairs((("top-p", {"p": 0.8}), ("top-k", {"k": 2}))):
        state_LT, token_LT, mask_LT = tree_responses(tree)
        N = len(tree.prompt_NQ)
        pi_L, mu_L = (_sequences(table, state_LT, token_LT, mask_LT) / N for table in (log_pi_SA, log_mu_SA))
        reward_L = _rewards(tree, token_LT, mask_LT)
        kept = mu_L > 0
        w_L = np.divide(pi_L, mu_L, out=np.zeros_like(pi_L), where=kept)
        rest = float(pi_L[~kept] @ reward_L[~kept])
        weighted = float(mu_L @ (w_L * reward_L))
        gaps.append(abs(weighted - (float(tree.value(np.exp(log_pi_SA))) - rest)))
        law = tree_distribution(tree, log_pi_SA, log_mu_SA)
        gaps += [abs(law.mass - float(pi_L[kept].sum())), 0.0 if law.kl_pi_mu == np.inf else 1.0]
        lost.append(rest)
        one = enumerated_distribution(
            log_pi_SA[0, :, None], log_mu_SA[0, :, None], np.ones((tree.actions, 1))
        )
        first_A = np.where(np.isfinite(log_mu_SA[0]), np.exp(log_pi_SA[0]), 0.0)
        gaps += [abs(one.ess_kish - 1.0), abs(one.mass - float(first_A.sum()))]
    gaps.append(short_of(min(lost), 1e-4))
    return exact(
        gaps, 1e-9, f"distance from pi on mu's support; J falls short by {min(lost):.2g} to {max(lost):.2g}"
    )


@EXPERIMENT.claim(
    "nested-reft-is-unbiased-under-sequence-weights",
    source="Nested-ReFT, arXiv:2508.10123 (abstract, which names no correction; here the sequence ratio)",
    kind="exact",
    statement=(
        "Sampling from the model with layers skipped, whichever are drawn, and weighting by the full model's "
        "sequence ratio gives the full model's exact gradient; without the weights it is biased."
    ),
)
def nested_reft() -> Evidence:
    """Return relative errors of the gradient of a small transformer over several draws of skipped layers."""
    import torch

    from envs.catalog import token_task
    from testbed.mismatch import engine
    from testbed.mismatch.behavior import Behavior
    from testbed.mismatch.report import every_rollout
    from testbed.policies.toy.transformer import ToyTransformer

    task = token_task("running-sum", {"digits": 3, "modulus": 3})
    policy = ToyTransformer(task, width=8, heads=2, layers=4, dtype=torch.float64)
    rollout = every_rollout(task, task.prompts(np.random.default_rng(0), 2), replicas=1)
    theta_RP = (3 * policy.initial((5,))).requires_grad_()
    log_pi_RB = policy.logp(theta_RP, rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT).sum(-1)

    def gradient(coefficient_RB: torch.Tensor) -> Floats:
        total = (coefficient_RB.detach() * rollout.reward_RB * log_pi_RB).sum()
        found: Floats = torch.autograd.grad(total, theta_RP, retain_graph=True)[0].numpy()
        return found

    truth_RP = gradient(log_pi_RB.exp())
    gaps, biases = [], []
    for ratio in (0.25, 0.5):
        behavior = Behavior(policy, engine("skip-layers", ratio=ratio), (5,))
        for step in range(4):
            log_mu_RB = behavior.logp(theta_RP.detach(), rollout, step).sum(-1)
            weighted_RB = log_mu_RB.exp() * (log_pi_RB - log_mu_RB).exp()
            gaps.append(_relative(gradient(weighted_RB), truth_RP))
            biases.append(_relative(gradient(log_mu_RB.exp()), truth_RP))
    gaps.append(short_of(min(biases), 1e-2))
    return exact(gaps, 1e-9, f"relative error; unweighted bias {min(biases):.2g} to {max(biases):.2g}")


def _tree_pairs(
    engines: tuple[tuple[str, dict[str, Any]], ...] = FULL_SUPPORT,
) -> list[tuple[Any, Floats, Floats]]:
    """Return (tree, log pi, log mu) of engines around two random policies, on two token trees."""
    import torch

    from envs.tokens.tree import tree
    from testbed.mismatch import engine
    from testbed.mismatch.behavior import Behavior
    from testbed.policies.tabular import TabularPolicy

    pairs = []
    for task in ("running-sum", "length"):
        world = tree(task=task, prompts=2)
        policy = TabularPolicy(world.states, world.actions)
        draws = np.random.default_rng(7).standard_normal((2, policy.parameters))
        theta_RP = torch.from_numpy(1.5 * draws)
        log_pi_RSA = policy.logits(theta_RP).log_softmax(-1).numpy()
        for name, hyper in engines:
            log_mu_RSA = Behavior(policy, engine(name, **hyper), (0, 1)).log_table(theta_RP, step=3).numpy()
            pairs += [(world, pi, mu) for pi, mu in zip(log_pi_RSA, log_mu_RSA, strict=True)]
    return pairs


def _noisy_law(shifts: tuple[Floats, ...]) -> tuple[Floats, Floats]:
    """Return log pi and log mu of pairs (noise, token), the noise drawn evenly from `shifts`."""
    log_mu = [np.log(PI) + shift - np.log(PI @ np.exp(shift)) for shift in shifts]
    even = np.log(len(shifts))
    return np.tile(np.log(PI), len(shifts)) - even, np.concatenate(log_mu) - even


def _sequences(log_p_SA: Floats, state_LT: Any, token_LT: Any, mask_LT: Any) -> Floats:
    """Return the probability of each response given its prompt."""
    product: Floats = np.exp(np.where(mask_LT, log_p_SA[state_LT, token_LT], 0.0).sum(-1))
    return product


def _rewards(tree: Any, token_LT: Any, mask_LT: Any) -> Floats:
    prompt_LQ = np.repeat(tree.prompt_NQ, len(token_LT) // len(tree.prompt_NQ), 0)
    reward_L: Floats = tree.task.score(prompt_LQ, token_LT, mask_LT)
    return reward_L


def _gradient(tree: Any, log_pi_SA: Floats, log_mu_SA: Floats, how: str) -> Floats:
    """Return the sum over responses of mu R sum_t weight_t d log pi(token_t), [S, A]."""
    from testbed.mismatch.ratio_distribution import tree_responses

    state_LT, token_LT, mask_LT = tree_responses(tree)
    mu_L = _sequences(log_mu_SA, state_LT, token_LT, mask_LT) / len(tree.prompt_NQ)
    rho_LT = np.where(mask_LT, np.exp((log_pi_SA - log_mu_SA)[state_LT, token_LT]), 1.0)
    weight = {"none": np.ones_like(rho_LT), "token": rho_LT, "sequence": rho_LT.prod(-1, keepdims=True)}[how]
    coefficient_LT = np.where(mask_LT, (mu_L * _rewards(tree, token_LT, mask_LT))[:, None] * weight, 0.0)
    taken_SA = np.zeros_like(log_pi_SA)
    np.add.at(taken_SA, (state_LT, token_LT), coefficient_LT)
    gradient_SA: Floats = taken_SA - taken_SA.sum(-1, keepdims=True) * np.exp(log_pi_SA)
    return gradient_SA


def _relative(found: Floats, truth: Floats) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))
