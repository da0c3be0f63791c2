"""Claims about engine mismatch: how the sequence ratio grows, and what importance weights can undo."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from analysis.lab import Evidence, Experiment, Part, exact, short_of
from envs.arrays import Floats
from envs.catalog import token_task
from envs.tokens.tree import tree as token_tree

EXPERIMENT = Experiment(
    "mismatch",
    question="How does the log-ratio of two engines grow with length, and what can importance weights undo?",
    source="papers on rollout precision and its correction, with each claim",
    systems={
        "Nested-ReFT": Part(
            "that the gradient is unbiased, and its variance; accuracy: see engine-arms",
            claims=(
                "nested-reft-is-unbiased-under-sequence-weights",
                "variance-grows-with-the-share-of-skipped-layers",
            ),
        ),
    },
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


@EXPERIMENT.claim(source="sums of martingale differences; derived")
def log_mismatch_variance_adds_over_tokens() -> Evidence:
    """Under mu, log(pi/mu) of a sequence varies about its drift -sum_t KL(mu, pi) with a variance that is
    exactly the sum over tokens of E[Var(log ratio | state)], whatever the mismatch; the mean of the drift is
    minus the divergence of the episode laws, by dynamic programming.
    """
    from testbed.mismatch.ratio_distribution import tree_distribution, tree_responses

    gaps = []
    for tree, log_pi_SA, log_mu_SA in _tree_pairs():
        state_XT, token_XT, mask_XT = tree_responses(tree)
        mu_SA, d_SA = np.exp(log_mu_SA), log_pi_SA - log_mu_SA
        drift_S = (mu_SA * d_SA).sum(-1)
        spread_S = (mu_SA * (d_SA - drift_S[:, None]) ** 2).sum(-1)
        mu_X = _sequences(log_mu_SA, state_XT, token_XT, mask_XT) / len(tree.prompt_NQ)
        centered_X = np.where(mask_XT, d_SA[state_XT, token_XT] - drift_S[state_XT], 0.0).sum(-1)
        added = mu_X @ np.where(mask_XT, spread_S[state_XT], 0.0).sum(-1)
        gaps.append(abs(mu_X @ centered_X**2 / added - 1.0))
        drift = float(mu_X @ np.where(mask_XT, drift_S[state_XT], 0.0).sum(-1))
        apart = tree.divergence(np.exp(log_pi_SA), mu_SA)
        gaps.append(abs(-drift / float(apart.kl_mu_pi) - 1.0))
        gaps.append(abs(-tree_distribution(tree, log_pi_SA, log_mu_SA).mean / float(apart.kl_mu_pi) - 1.0))
    return exact(gaps, 1e-9, "largest relative difference between the variance and the sum over tokens")


@EXPERIMENT.claim(source="rollout precision as in Jet-RL, arXiv:2601.14243; growth derived, condition added")
def log_mismatch_grows_as_root_t() -> Evidence:
    """Where every state has the same next-token law, the standard deviation of a sequence's log(pi/mu) is
    exactly sqrt(T) times a token's: for logit noise fresh per token, and for one that stays.

    Return distances of std(T) / std(1) from sqrt(T), by enumeration of noise and tokens, T = 1 to 5.
    """
    from testbed.mismatch.ratio_distribution import enumerated_distribution

    gaps = []
    fresh = _noisy_law(SHIFTS)
    for log_pi_A, log_mu_A in (fresh, *(_noisy_law((shift,)) for shift in SHIFTS)):
        std_T = []
        for length in range(1, 6):
            token_XT = np.indices((len(log_pi_A),) * length).reshape(length, -1).T
            full_XT = np.ones(token_XT.shape, dtype=bool)
            std_T.append(enumerated_distribution(log_pi_A[token_XT], log_mu_A[token_XT], full_XT).std)
        gaps += list(np.abs(np.array(std_T) / std_T[0] - np.sqrt(np.arange(1, 6))))
    return exact(gaps, 1e-9, "largest distance of std(T) / std(1) from sqrt(T)")


@EXPERIMENT.claim(source="corrects 'grows as sqrt(T)' for perturbations that stay; derived")
def log_mismatch_outgrows_root_t_where_its_drift_varies() -> Evidence:
    """Over draws of a perturbation that is kept for the whole sequence the variance of log(pi/mu) is T E[Var]
    + T^2 Var[KL(mu, pi) per token]: it outgrows T because draws, or regions of states, differ in KL, and by
    nothing else.
    """
    from testbed.mismatch.ratio_distribution import enumerated_distribution

    laws = [_noisy_law((shift,)) for shift in SHIFTS]
    drift_Z = np.array([np.exp(mu) @ (pi - mu) for pi, mu in laws])
    spread_Z = np.array([np.exp(mu) @ (pi - mu - k) ** 2 for (pi, mu), k in zip(laws, drift_Z, strict=True)])
    gaps, variance_T = [], []
    for length in range(1, 7):
        token_XT = np.indices((len(PI),) * length).reshape(length, -1).T
        # The perturbation is part of the response: its own prompt, equally likely.
        log_pi_XT, log_mu_XT = (np.concatenate([law[which][token_XT] for law in laws]) for which in (0, 1))
        full_XT = np.ones(log_pi_XT.shape, dtype=bool)
        variance_T.append(enumerated_distribution(log_pi_XT, log_mu_XT, full_XT, len(laws)).std ** 2)
        gaps.append(abs(variance_T[-1] - length * spread_Z.mean() - length**2 * drift_Z.var()))
    growth = variance_T[-1] / variance_T[0]
    gaps.append(short_of(growth, 7.0))
    return exact(gaps, 1e-9, f"distance from the formula; Var at T = 6 is {growth:.3g} times that at T = 1")


@EXPERIMENT.claim(
    source="e4m3: Micikevicius et al. (2022), arXiv:2209.05433; int8: arXiv:2208.07339; bound derived"
)
def rounded_weights_keep_the_ratio_within_their_format() -> Evidence:
    """Logits rounded to bf16, to e4m3 with one scale or to int8 with one per state move log(pi/mu) of a
    state's tokens over a range of at most one unit in the last place of the state's largest logit, and in
    some state over half of that or more.
    """
    gaps = []
    for name in ("bf16", "fp8-tensor", "int8"):
        for _, log_pi_SA, log_mu_SA, theta_SA in _tables(((name, {}),)):
            share = float((np.ptp(log_pi_SA - log_mu_SA, axis=-1) / _last_place(name, theta_SA)).max())
            gaps += [share - 1.0, short_of(share, 0.5)]
    return exact(gaps, 1e-12, "largest excess over the bound, or lack of half of it, relative to it")


def _last_place(name: str, theta_SA: Floats) -> Floats:
    """Return the unit in the last place of each state's largest logit, [S], by the definition of a format."""
    largest_S = np.abs(theta_SA).max(-1)
    if name == "int8":
        return largest_S / 127
    # bf16 has 8 significant bits, e4m3 four from 2^-6 on; its largest number is 448.
    scale, bits = (float(largest_S.max()) / 448, 4) if name == "fp8-tensor" else (1.0, 8)
    exponent_S = np.floor(np.log2(largest_S / scale))
    if name == "fp8-tensor":
        exponent_S = np.maximum(exponent_S, -6.0)
    unit_S: Floats = scale * 2.0 ** (exponent_S - bits + 1)
    return unit_S


@EXPERIMENT.claim(source="top-p or top-k on the sampler's side only, with importance weights; derived")
def one_sided_truncation_loses_exactly_the_cut_mass() -> Evidence:
    """With top-p or top-k in the sampler only, a state keeps the least mass of likeliest tokens that reaches
    p, or that of the k likeliest. E[W] is the mass of what can be sampled and E[W R] is short of J by exactly
    the expected reward of the rest; for one token W is constant, so ESS is 1 however much is lost.
    """
    from testbed.mismatch.ratio_distribution import enumerated_distribution, tree_distribution, tree_responses

    gaps: list[float] = []
    lost: list[float] = []
    for tree, log_pi_SA, log_mu_SA in _tree_pairs((("top-p", {"p": 0.8}), ("top-k", {"k": 2}))):
        gaps.append(_off_both_cuts(np.exp(log_pi_SA), log_mu_SA))
        state_XT, token_XT, mask_XT = tree_responses(tree)
        N = len(tree.prompt_NQ)
        pi_X, mu_X = (_sequences(table, state_XT, token_XT, mask_XT) / N for table in (log_pi_SA, log_mu_SA))
        reward_X = _rewards(tree, token_XT, mask_XT)
        kept = mu_X > 0
        w_X = np.divide(pi_X, mu_X, out=np.zeros_like(pi_X), where=kept)
        rest = float(pi_X[~kept] @ reward_X[~kept])
        weighted = float(mu_X @ (w_X * reward_X))
        gaps.append(abs(weighted - (float(tree.value(np.exp(log_pi_SA))) - rest)))
        law = tree_distribution(tree, log_pi_SA, log_mu_SA)
        gaps += [abs(law.mass - float(pi_X[kept].sum())), 0.0 if law.kl_pi_mu == np.inf else 1.0]
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
    source="Nested-ReFT, arXiv:2508.10123 (abstract, which names no correction; here the sequence ratio)"
)
def nested_reft_is_unbiased_under_sequence_weights() -> Evidence:
    """Sampling from the model with layers skipped, whichever are drawn, the log-probabilities that the
    sampler notes are those of a law over responses, the same whenever they are read; weighted by the full
    model's ratio to it the gradient is exact, without the weights it is biased.
    """
    import torch

    from testbed.mismatch import engine
    from testbed.mismatch.behavior import Behavior
    from testbed.mismatch.mismatch_report import every_rollout
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
            gaps.append(_off_the_law(behavior, theta_RP.detach(), rollout, step))
            gaps.append(abs(float(log_mu_RB.exp().sum()) / rollout.prompt_RNQ.shape[1] - 1.0))
            weighted_RB = log_mu_RB.exp() * (log_pi_RB - log_mu_RB).exp()
            gaps.append(_relative(gradient(weighted_RB), truth_RP))
            biases.append(_relative(gradient(log_mu_RB.exp()), truth_RP))
    gaps.append(short_of(min(biases), 1e-2))
    return exact(gaps, 1e-9, f"relative error; unweighted bias {min(biases):.2g} to {max(biases):.2g}")


@EXPERIMENT.claim(source="Nested-ReFT, arXiv:2508.10123: controlled variance", kind="enumerated")
def variance_grows_with_the_share_of_skipped_layers() -> Evidence:
    """The variance of a response's weighted gradient, by enumeration and averaged over drawn sets of skipped
    layers, grows by 1 % and more from a share of 0 to 1/4 to 1/2, in 2 transformers of 4 layers that are
    right half of the time.
    """
    drops, growth = [], []
    for seed in range(2):
        found = _variances(seed, (0.0, 0.25, 0.5))
        drops += [short_of(b / a, 1.01) for a, b in pairwise(found)]
        growth.append([value / found[0] for value in found[1:]])
    quarter, half = np.median(growth, 0)
    return exact(drops, 1e-9, f"relative falls; median variance {quarter:.2f} and {half:.2f} times that of 0")


def _variances(seed: int, ratios: tuple[float, ...]) -> list[float]:
    """Return E_mu |W R d log pi|^2 - |E_pi R d log pi|^2 for each share of layers, averaged over 8 draws."""
    import torch

    from testbed.mismatch import engine
    from testbed.mismatch.behavior import Behavior
    from testbed.mismatch.mismatch_report import every_rollout
    from testbed.policies.toy.transformer import ToyTransformer

    task = token_task("running-sum", {"digits": 3, "modulus": 2})
    policy = ToyTransformer(task, width=8, heads=2, layers=4, dtype=torch.float64)
    rollout = every_rollout(task, task.prompts(np.random.default_rng(seed), 1), replicas=1)
    where = rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT
    right_X = rollout.reward_RB[0].nonzero()[:, 0]
    theta_RP = policy.initial((seed,)).requires_grad_()
    learner = torch.optim.Adam([theta_RP], lr=3e-2)
    for _ in range(200):
        log_pi_X = policy.logp(theta_RP, *where).sum(-1)[0, right_X]
        if log_pi_X.exp().sum() >= 0.5:
            break
        learner.zero_grad()
        (-log_pi_X.logsumexp(0)).backward()
        learner.step()
    score = [torch.autograd.grad(each, theta_RP, retain_graph=True)[0][0] for each in log_pi_X]
    score_XP, pi_X = torch.stack(score), log_pi_X.detach().exp()
    found = []
    for ratio in ratios:
        behavior = Behavior(policy, engine("skip-layers", ratio=ratio), (seed,))
        drawn = [behavior.logp(theta_RP.detach(), rollout, step).sum(-1)[0, right_X] for step in range(8)]
        square_X = (pi_X.square() / torch.stack(drawn).exp()).mean(0)
        found.append(float(square_X @ score_XP.square().sum(1) - (pi_X @ score_XP).square().sum()))
    return found


def _off_both_cuts(pi_SA: Floats, log_mu_SA: Floats, p: float = 0.8, k: int = 2) -> float:
    """Return the largest distance of the mass that states keep from that of the nucleus, or from top-k's."""
    kept_S = np.where(np.isfinite(log_mu_SA), pi_SA, 0.0).sum(-1)
    cumulated_SA = np.sort(pi_SA)[:, ::-1].cumsum(-1)
    reached_S = cumulated_SA[np.arange(len(pi_SA)), (cumulated_SA < p).sum(-1).clip(max=pi_SA.shape[1] - 1)]
    off = [np.abs(kept_S - mass_S).max() for mass_S in (reached_S, cumulated_SA[:, k - 1])]
    return float(min(off))


def _tree_pairs(
    engines: tuple[tuple[str, dict[str, Any]], ...] = FULL_SUPPORT,
) -> list[tuple[Any, Floats, Floats]]:
    """Return (tree, log pi, log mu) of engines around two random policies, on two token trees."""
    return [(tree, log_pi_SA, log_mu_SA) for tree, log_pi_SA, log_mu_SA, _ in _tables(engines)]


def _tables(engines: tuple[tuple[str, dict[str, Any]], ...]) -> list[tuple[Any, Floats, Floats, Floats]]:
    """Return (tree, log pi, log mu, logits) of engines around two random policies, on two token trees."""
    import torch

    from testbed.mismatch import engine
    from testbed.mismatch.behavior import Behavior
    from testbed.policies.tabular import TabularPolicy

    pairs = []
    for task in ("running-sum", "length"):
        world = token_tree(task=task, prompts=2)
        policy = TabularPolicy(world.states, world.actions)
        draws = np.random.default_rng(7).standard_normal((2, policy.parameters))
        theta_RP = torch.from_numpy(1.5 * draws)
        log_pi_RSA = policy.logits(theta_RP).log_softmax(-1).numpy()
        for name, hyper in engines:
            log_mu_RSA = Behavior(policy, engine(name, **hyper), (0, 1)).log_table(theta_RP, step=3).numpy()
            logits_RSA = policy.logits(theta_RP).numpy()
            pairs += [(world, *tables) for tables in zip(log_pi_RSA, log_mu_RSA, logits_RSA, strict=True)]
    return pairs


def _noisy_law(shifts: tuple[Floats, ...]) -> tuple[Floats, Floats]:
    """Return log pi and log mu of pairs (noise, token), the noise drawn evenly from `shifts`."""
    log_mu = [np.log(PI) + shift - np.log(PI @ np.exp(shift)) for shift in shifts]
    even = np.log(len(shifts))
    return np.tile(np.log(PI), len(shifts)) - even, np.concatenate(log_mu) - even


def _sequences(log_p_SA: Floats, state_XT: Any, token_XT: Any, mask_XT: Any) -> Floats:
    """Return the probability of each response given its prompt."""
    product: Floats = np.exp(np.where(mask_XT, log_p_SA[state_XT, token_XT], 0.0).sum(-1))
    return product


def _rewards(tree: Any, token_XT: Any, mask_XT: Any) -> Floats:
    prompt_LQ = np.repeat(tree.prompt_NQ, len(token_XT) // len(tree.prompt_NQ), 0)
    reward_X: Floats = tree.task.score(prompt_LQ, token_XT, mask_XT)
    return reward_X


def _off_the_law(behavior: Any, theta_RP: Any, rollout: Any, step: int) -> float:
    """Return the largest distance of what a sampler notes from what is read afterwards, nats."""
    import torch

    made = torch.Generator().manual_seed(step)
    uniform_RBT = torch.rand(rollout.token_RBT.shape, dtype=torch.float64, generator=made)
    where = theta_RP, rollout.prompt_RNQ
    token_RBT, mask_RBT, noted_RBT = behavior.sample(*where, rollout.group, uniform_RBT, step)
    drawn = replace(rollout, token_RBT=token_RBT, mask_RBT=mask_RBT)
    read_RBT = behavior.logp(theta_RP, drawn, step)
    return float((read_RBT - noted_RBT)[mask_RBT].abs().max())


def _relative(found: Floats, truth: Floats) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))
